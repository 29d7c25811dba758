//! A browser without a window.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};

use super::certificate::key_digest;
use super::pointsman::fresh_directory;
use super::wait_for;

const FLAGS: [&str; 9] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-breakpad",
    // Every name is here.
    "--host-resolver-rules=MAP * 127.0.0.1",
];

/// Loads a page in a new Chromium, over TCP, and ends it: the page as it became.
pub fn browse(url: &str) -> String {
    load(url, &["--disable-quic", "--ignore-certificate-errors"])
}

/// Loads the page of `HOST:PORT` over HTTP/3 and nothing else. QUIC takes a certificate that signs
/// itself only if its key is named.
pub fn browse_quic(host: &str, certificate: &Path) -> String {
    let force = format!("--origin-to-force-quic-on={host}");
    let trust = format!("--ignore-certificate-errors-spki-list={}", key_digest(certificate));
    load(&format!("https://{host}/"), &["--enable-quic", &force, &trust])
}

fn load(url: &str, flags: &[&str]) -> String {
    let directory = fresh_directory();
    let file = |name| File::create(directory.join(name)).unwrap();
    let child = Command::new("chromium")
        .args(FLAGS)
        .args(flags)
        .arg(format!("--user-data-dir={}", directory.join("profile").display()))
        .args(["--dump-dom", url])
        .env("HOME", &directory)
        .stdin(Stdio::null())
        .stdout(file("page"))
        .stderr(file("log"))
        .process_group(0)
        .spawn()
        .expect("chromium is installed");
    let mut browser = Browser(child);
    let status = wait_for(&format!("chromium to load {url}"), || browser.0.try_wait().unwrap());
    drop(browser);
    let text =
        |name| String::from_utf8_lossy(&fs::read(directory.join(name)).unwrap()).into_owned();
    let (page, log) = (text("page"), text("log"));
    let _kept = fs::remove_dir_all(&directory);
    assert!(status.success(), "{url}: {status}\n{log}");
    page
}

/// Its processes are a group, killed when dropped.
struct Browser(Child);

impl Drop for Browser {
    fn drop(&mut self) {
        let _ended = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _reaped = self.0.wait();
    }
}
