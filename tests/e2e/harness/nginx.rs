//! nginx as a backend, on a unix socket so that no port is guessed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::pointsman::fresh_directory;
use super::stream::Stream;
use super::wait_until;

/// A running nginx, killed and reaped when dropped.
#[derive(Debug)]
pub struct Nginx {
    directory: PathBuf,
    child: Child,
}

impl Nginx {
    /// Starts one whose only location contains `directives`.
    pub fn start(directives: &str) -> Self {
        let server = format!("listen unix:DIR/socket; location / {{ {directives} }}");
        Self::serving(&server, |_| ())
    }

    /// Starts one with a server that listens on `unix:DIR/socket`, where `DIR` stands for its
    /// directory, which `prepare` fills.
    pub fn serving(server: &str, prepare: impl FnOnce(&Path)) -> Self {
        Self::servers(&[server.to_owned()], prepare)
    }

    /// As [`Nginx::serving`], with several servers that listen there.
    pub fn servers(servers: &[String], prepare: impl FnOnce(&Path)) -> Self {
        let directory = fresh_directory();
        let dir = directory.display().to_string();
        let servers: Vec<_> =
            servers.iter().map(|server| format!("server {{ {server} }}")).collect();
        let servers = servers.join("\n").replace("DIR", &dir);
        let config = format!(
            "daemon off; master_process off; error_log {dir}/error.log; pid {dir}/pid;\n\
             events {{ worker_connections 1024; }}\n\
             http {{ access_log off; client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy;\n\
             fastcgi_temp_path {dir}/fastcgi; uwsgi_temp_path {dir}/uwsgi;\n\
             scgi_temp_path {dir}/scgi; client_max_body_size 0;\n\
             {servers} }}\n"
        );
        fs::write(directory.join("nginx.conf"), config).unwrap();
        prepare(&directory);
        let child = Command::new("nginx")
            .arg("-p")
            .arg(&directory)
            .args(["-e", "error.log", "-c", "nginx.conf"])
            .stdin(Stdio::null())
            .spawn()
            .expect("nginx is installed");
        let mut nginx = Nginx { directory, child };
        let address = nginx.address();
        wait_until("nginx to listen", || {
            let ended = nginx.child.try_wait().unwrap();
            assert!(ended.is_none(), "nginx ended with {ended:?}");
            Stream::try_connect(&address).is_ok()
        });
        nginx
    }

    /// Kills it where it stands. What it listens on is closed when this returns.
    pub fn kill(&mut self) {
        self.child.kill().expect("it has not ended by itself");
        self.child.wait().unwrap();
    }

    /// As the configuration names it.
    pub fn address(&self) -> String {
        format!("unix:{}/socket", self.directory.display())
    }

    /// What `DIR` stands for.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// What it has complained of so far.
    pub fn errors(&self) -> String {
        fs::read_to_string(self.directory.join("error.log")).unwrap()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
        let _kept = fs::remove_dir_all(&self.directory);
    }
}
