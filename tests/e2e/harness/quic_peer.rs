//! QUIC servers and clients: aioquic, which `scripts/test` puts beside the build.

use std::fs::{self, File};
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use super::certificate::certify;
use super::pointsman::fresh_directory;
use super::wait_for;

/// A script of `tests/e2e/peers` with its output in a file. Killed and reaped when dropped.
#[derive(Debug)]
struct Script {
    child: Child,
    directory: PathBuf,
}

impl Script {
    fn start(name: &str, directory: PathBuf, input: Stdio, arguments: &[String]) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/peers").join(name);
        let packages = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("python");
        let file = |name| File::create(directory.join(name)).unwrap();
        let child = Command::new("python3")
            .arg(script)
            .args(arguments)
            .env("PYTHONPATH", packages)
            .stdin(input)
            .stdout(file("stdout"))
            .stderr(file("stderr"))
            .spawn()
            .expect("python3 is installed");
        Script { child, directory }
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.directory.join(name)).unwrap()
    }

    /// A whole line of what it has printed, or `None` if it has ended without.
    fn line(&mut self, number: usize) -> Option<String> {
        wait_for(&format!("line {number} of a peer"), || {
            let ended = self.child.try_wait().unwrap().is_some();
            let text = self.read("stdout");
            let line = text.split_inclusive('\n').nth(number);
            match line.and_then(|line| line.strip_suffix('\n')) {
                Some(line) => Some(Some(line.to_owned())),
                None => ended.then_some(None),
            }
        })
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- {} ---\n{}---", self.directory.display(), self.read("stderr"));
        }
        let _kept = fs::remove_dir_all(&self.directory);
    }
}

/// A server that says its name, with a certificate for it.
#[derive(Debug)]
pub struct QuicServer {
    _script: Script,
    address: SocketAddr,
    certificate: PathBuf,
}

impl QuicServer {
    /// Starts one for `HOST`, which calls itself `name`. `more` are further arguments.
    pub fn start(name: &str, host: &str, alpn: &str, more: &[&str]) -> Self {
        let directory = fresh_directory();
        certify(&directory, "own", &format!("DNS:{host}"));
        let file = |end: &str| directory.join(format!("own.{end}")).to_str().unwrap().to_owned();
        let (certificate, key) = (file("pem"), file("key"));
        let own = ["--name", name, "--certificate", &certificate, "--key", &key, "--alpn", alpn];
        let arguments: Vec<_> = own.iter().chain(more).map(|text| (*text).to_owned()).collect();
        let mut script = Script::start("quic_server.py", directory, Stdio::null(), &arguments);
        let port = script.line(0).expect("aioquic is installed (by scripts/test)");
        let host = more.iter().skip_while(|word| **word != "--host").nth(1);
        let host: IpAddr = host.unwrap_or(&"127.0.0.1").parse().unwrap();
        let address = SocketAddr::new(host, port.parse().unwrap());
        QuicServer { _script: script, address, certificate: certificate.into() }
    }

    /// As the configuration names it.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Its certificate, which vouches for itself.
    pub fn certificate(&self) -> &Path {
        &self.certificate
    }
}

/// A client that sends lines.
#[derive(Debug)]
pub struct QuicClient {
    script: Script,
    input: ChildStdin,
    answers: usize,
}

/// What a client is to do.
#[derive(Clone, Copy, Debug)]
pub struct Dial<'a> {
    /// The port of this machine.
    pub port: u16,
    /// The name to ask for, if any.
    pub name: Option<&'a str>,
    /// The certificate that the server must have.
    pub authority: &'a Path,
    /// Protocols to offer, with commas.
    pub alpn: &'a str,
    /// 1 or 2.
    pub version: u8,
    /// Further arguments.
    pub more: &'a [&'a str],
}

impl QuicClient {
    /// Starts to connect.
    pub fn start(dial: Dial<'_>) -> Self {
        let mut arguments = format!(
            "--port\n{}\n--authority\n{}\n--alpn\n{}\n--version\n{}",
            dial.port,
            dial.authority.display(),
            dial.alpn,
            dial.version
        );
        if let Some(name) = dial.name {
            arguments += &format!("\n--name\n{name}");
        }
        let more = dial.more.iter().copied();
        let arguments: Vec<_> = arguments.lines().chain(more).map(str::to_owned).collect();
        let directory = fresh_directory();
        let mut script = Script::start("quic_client.py", directory, Stdio::piped(), &arguments);
        let input = script.child.stdin.take().unwrap();
        QuicClient { script, input, answers: 0 }
    }

    /// Connects, and fails the test if that does not work.
    pub fn connect(dial: Dial<'_>) -> Self {
        let mut client = Self::start(dial);
        assert!(client.connected().is_some(), "{dial:?}: {}", client.script.read("stderr"));
        client
    }

    /// The version and the protocol, or `None` when it could not connect.
    pub fn connected(&mut self) -> Option<String> {
        Some(self.script.line(0)?.strip_prefix("connected ").expect("a greeting").to_owned())
    }

    /// Sends a line.
    pub fn send(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    /// The next answer.
    pub fn answer(&mut self) -> String {
        self.answers += 1;
        self.script.line(self.answers).unwrap_or_else(|| panic!("{}", self.script.read("stderr")))
    }

    /// Sends a line; who has answered it.
    pub fn ask(&mut self, line: &str) -> String {
        self.send(line);
        let answer = self.answer();
        let (name, echoed) = answer.split_once(": ").expect("a name");
        assert_eq!(echoed, line);
        name.to_owned()
    }
}
