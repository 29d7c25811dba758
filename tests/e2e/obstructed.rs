//! Places to write to that take nothing: nobody waits for them for ever.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;

use crate::harness::{
    Backend, Pointsman, Stream, UdpClient, command, fresh_directory, one_listener, wait_until,
};

const SECOND: Duration = Duration::from_secs(1);

/// Removed when dropped.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _kept = fs::remove_dir_all(&self.0);
    }
}

fn directory() -> Directory {
    Directory(fresh_directory())
}

fn make_fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

/// A FIFO that is full, and stays so while the file is open.
fn full_fifo(path: &Path) -> File {
    make_fifo(path);
    let mut fifo = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .unwrap();
    for size in [4096, 1] {
        while fifo.write(&vec![b'x'; size]).is_ok() {}
    }
    let full = fifo.write(b"x").unwrap_err();
    assert_eq!(full.raw_os_error(), Some(Errno::AGAIN.raw_os_error()));
    fifo
}

/// Connects, and takes whatever end that has.
fn connect_in_vain(address: &str) {
    let mut stream = Stream::connect(address);
    let _no_backend = stream.try_receive(1).unwrap_err();
}

fn dropped(pointsman: &Pointsman) -> f64 {
    pointsman.metrics().value("pointsman_access_log_dropped_total", &[])
}

/// The writer has a pipe full, the queue is full, and then it is to end.
#[test]
fn an_access_log_that_nobody_reads_does_not_delay_the_end() {
    let nobody = Backend::refusing();
    let (unread, stdout): (OwnedFd, OwnedFd) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_pointsman"));
    program.stdout(Stdio::from(stdout));
    // Each of its datagrams is a flow that has no route, and a record.
    let flood = "{ flood: { bind: \"127.0.0.1:0\", protocol: udp, udp: { per_packet: true }, \
                 routes: [{ source: 192.0.2.0/24, pool: pool }] }, edge:";
    let yaml = one_listener("", &[&nobody.address()], "").replace("{ edge:", flood);
    let yaml = format!("shutdown: {{ grace: 1s }}\naccess_log: {{ path: stdout }}\n{yaml}");
    let mut pointsman = Pointsman::spawn_by(program, &yaml);
    pointsman.wait_ready();
    let flood = UdpClient::to(&pointsman.address("flood"));
    wait_until("the queue to be full", || {
        (0..1000).for_each(|_| flood.send("x"));
        dropped(&pointsman) > 0.0
    });
    connect_in_vain(&pointsman.address("edge"));
    let since = Instant::now();
    pointsman.signal(Signal::TERM);
    assert_eq!(pointsman.wait().code(), Some(0));
    // It is given five seconds, and the process has nothing else to do.
    assert!(since.elapsed() < 10 * SECOND, "{:?}", since.elapsed());
    assert!(pointsman.log().contains("records are lost"), "{}", pointsman.log());
    drop(unread);
}

#[test]
fn a_fifo_that_nobody_reads_is_no_access_log_to_start_with() {
    let directory = directory();
    let (fifo, config) = (directory.0.join("fifo"), directory.0.join("test.yaml"));
    make_fifo(&fifo);
    let yaml = one_listener("", &["127.0.0.1:1"], "");
    let yaml = format!("access_log: {{ path: \"{}\" }}\n{yaml}", fifo.display());
    fs::write(&config, yaml).unwrap();
    let since = Instant::now();
    let answer = command(&["run", "-c", config.to_str().unwrap()]);
    assert!(since.elapsed() < 5 * SECOND, "{:?}", since.elapsed());
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(answer.stderr.contains("access_log: cannot be written: "), "{answer:?}");
}

#[test]
fn a_fifo_that_nobody_reads_is_no_access_log_to_reload() {
    let backend = Backend::echo();
    let yaml = one_listener("", &[&backend.address()], "");
    let pointsman = Pointsman::start(&yaml);
    let fifo = pointsman.directory().join("fifo");
    make_fifo(&fifo);
    let to_fifo = format!("access_log: {{ path: DIR/fifo }}\n{yaml}");
    pointsman.configure(&to_fifo);
    let since = Instant::now();
    let (status, body) = pointsman.admin("POST", "/api/v1/reload");
    assert!(since.elapsed() < 5 * SECOND, "{:?}", since.elapsed());
    assert_eq!(status, 422, "{body}");
    assert!(body.contains("access_log: cannot be written: "), "{body}");
    assert_eq!(pointsman.reload(&yaml), Ok(2));
    drop(pointsman.connect("edge"));
    assert_eq!(pointsman.access_log(1).len(), 1);
    // With a reader it is as good as any other file.
    let reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&fifo).unwrap();
    assert_eq!(pointsman.reload(&to_fifo), Ok(3));
    drop(reader);
    assert_eq!(pointsman.reload(&yaml), Ok(4));
    pointsman.stop();
}

/// Each connection to a dead backend is some lines at `debug`.
#[test]
fn a_stderr_that_nobody_reads_stops_nobody() {
    const CONNECTIONS: usize = 4000;
    let directory = directory();
    let fifo = directory.0.join("stderr");
    let full = full_fifo(&fifo);
    let (nobody, echo) = (Backend::refusing(), Backend::echo());
    let mut program = Command::new("sh");
    program.args(["-c", "exec \"$0\" \"$@\" 2>\"$LOG\"", env!("CARGO_BIN_EXE_pointsman")]);
    program.env("LOG", &fifo);
    let yaml = one_listener("", &[&nobody.address()], "")
        .replace("{ edge:", "{ echo: { bind: \"127.0.0.1:0\", pool: echo }, edge:")
        .replace(
            "pools: {",
            &format!("pools: {{ echo: {{ backends: [\"{}\"] }}, ", echo.address()),
        );
    let yaml = format!("log: {{ level: debug }}\nshutdown: {{ grace: 1s }}\n{yaml}");
    let mut pointsman = Pointsman::spawn_by(program, &yaml);
    pointsman.wait_ready();
    let edge = pointsman.address("edge");
    for _ in 0..CONNECTIONS {
        connect_in_vain(&edge);
    }
    assert_eq!(pointsman.wait_idle().closed("edge", "connect_failed"), CONNECTIONS as f64);
    let mut client = pointsman.connect("echo");
    client.send(100_000);
    client.receive(100_000);
    drop(client);
    assert_eq!(pointsman.admin("GET", "/livez").0, 200);
    assert_eq!(pointsman.reload(&yaml), Ok(2));
    let since = Instant::now();
    pointsman.signal(Signal::TERM);
    assert_eq!(pointsman.wait().code(), Some(0));
    assert!(since.elapsed() < 5 * SECOND, "{:?}", since.elapsed());
    assert_eq!(pointsman.access_log(CONNECTIONS + 1).len(), CONNECTIONS + 1);
    drop(full);
}

/// What is lost while there is nowhere to write is counted, and no signal is needed to go on.
#[test]
fn an_access_log_whose_directory_is_gone_comes_back_with_it() {
    let directory = directory();
    let logs = directory.0.join("logs");
    fs::create_dir(&logs).unwrap();
    let log = logs.join("access.log");
    let nobody = Backend::refusing();
    let yaml = one_listener("", &[&nobody.address()], "");
    let pointsman = Pointsman::start(&format!(
        "access_log: {{ path: \"{}\", format: json }}\n{yaml}",
        log.display()
    ));
    let edge = pointsman.address("edge");
    let records = || fs::read_to_string(&log).unwrap_or_default().lines().count();
    (0..5).for_each(|_| connect_in_vain(&edge));
    wait_until("five records", || records() == 5);
    fs::remove_dir_all(&logs).unwrap();
    pointsman.signal(Signal::USR1);
    pointsman.wait_for_log("cannot open the access log");
    (0..7).for_each(|_| connect_in_vain(&edge));
    wait_until("seven lost records", || dropped(&pointsman) == 7.0);
    fs::create_dir(&logs).unwrap();
    let since = Instant::now();
    let mut later = 0;
    while records() == 0 {
        connect_in_vain(&edge);
        later += 1;
        assert!(since.elapsed() < 4 * SECOND, "no record {:?} later", since.elapsed());
    }
    wait_until("each record to be written or counted", || {
        records() as f64 + dropped(&pointsman) - 7.0 == f64::from(later)
    });
    pointsman.stop();
}
