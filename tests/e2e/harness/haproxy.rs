//! HAProxy as a backend, on a unix socket so that no port is guessed.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use super::pointsman::fresh_directory;
use super::stream::Stream;
use super::wait_until;

/// A running HAProxy, killed and reaped when dropped.
#[derive(Debug)]
pub struct Haproxy {
    directory: PathBuf,
    child: Child,
}

impl Haproxy {
    /// Starts one with a single proxy of these lines.
    pub fn start(lines: &[&str]) -> Self {
        Self::binding("", lines)
    }

    /// As [`Haproxy::start`], with options of its `bind`.
    pub fn binding(options: &str, lines: &[&str]) -> Self {
        let directory = fresh_directory();
        let config = format!(
            "global\n nbthread 1\n maxconn 500\ndefaults\n timeout connect 5s\n timeout client 60s\n \
             timeout server 60s\nlisten edge\n bind unix@{}/socket {options}\n {}\n",
            directory.display(),
            lines.join("\n ")
        );
        fs::write(directory.join("haproxy.cfg"), config).unwrap();
        let child = Command::new("haproxy")
            .args(["-q", "-db", "-f"])
            .arg(directory.join("haproxy.cfg"))
            .stdin(Stdio::null())
            .spawn()
            .expect("haproxy is installed");
        let mut haproxy = Haproxy { directory, child };
        let address = haproxy.address();
        wait_until("haproxy to listen", || {
            let ended = haproxy.child.try_wait().unwrap();
            assert!(ended.is_none(), "haproxy ended with {ended:?}");
            Stream::try_connect(&address).is_ok()
        });
        haproxy
    }

    /// As the configuration names it.
    pub fn address(&self) -> String {
        format!("unix:{}/socket", self.directory.display())
    }
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
        let _kept = fs::remove_dir_all(&self.directory);
    }
}
