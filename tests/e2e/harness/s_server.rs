//! `openssl s_server` as a backend that speaks TLS and a little HTTP, one client at a time.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::certificate::certify;
use super::held_port::HeldPort;
use super::pointsman::fresh_directory;
use super::stream::Stream;
use super::wait_until;

/// A running server, killed and reaped when dropped.
#[derive(Debug)]
pub struct SServer {
    directory: PathBuf,
    port: HeldPort,
    child: Child,
}

impl SServer {
    /// Starts one with a certificate for `a.example` that signs itself, and further arguments.
    pub fn start(arguments: &[&str]) -> Self {
        Self::with(arguments, |directory| certify(directory, "own", "DNS:a.example"))
    }

    /// As [`SServer::start`], with what `prepare` puts into `own.pem` and `own.key`.
    pub fn with(arguments: &[&str], prepare: impl FnOnce(&Path)) -> Self {
        let (directory, port) = (fresh_directory(), HeldPort::new("127.0.0.1"));
        prepare(&directory);
        let log = File::create(directory.join("log")).unwrap();
        let child = Command::new("openssl")
            .current_dir(&directory)
            .args(["s_server", "-4", "-accept", &port.address().to_string()])
            .args(["-cert", "own.pem", "-key", "own.key", "-www"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .expect("openssl is installed");
        let mut server = SServer { directory, port, child };
        let address = server.address();
        wait_until("s_server to listen", || {
            let ended = server.child.try_wait().unwrap();
            assert!(ended.is_none(), "it ended with {ended:?}: {}", server.log());
            Stream::try_connect(&address).is_ok()
        });
        server
    }

    /// As the configuration names it.
    pub fn address(&self) -> String {
        self.port.address().to_string()
    }

    /// Where its certificate is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// What it has said so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for SServer {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
        let _kept = fs::remove_dir_all(&self.directory);
    }
}
