//! The program as a process.

use std::fs;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};
use serde_json::Value;

use super::admin::request;
use super::command::{Answer, command};
use super::metrics::Metrics;
use super::process::{Usage, asleep, cpu_time, is_stopped, nothing_under_way, resident, usage};
use super::record::Record;
use super::stream::Stream;
use super::{PATIENCE, pass, wait_for, wait_until};

/// How much of the log a failed test prints.
const TAIL: usize = 16 * 1024;

/// A running pointsman, with an admin server on a unix socket and an access log in a file, both
/// in a directory of its own. Killed and reaped when dropped.
#[derive(Debug)]
pub struct Pointsman {
    directory: PathBuf,
    child: Child,
}

impl Pointsman {
    /// Starts it and waits until it is ready. `yaml` has no `admin`, and an `access_log` only if
    /// it is to be another one; `DIR` in it stands for the directory.
    pub fn start(yaml: &str) -> Self {
        let mut pointsman = Self::spawn(yaml);
        pointsman.wait_ready();
        pointsman
    }

    /// As [`Pointsman::start`], without waiting.
    pub fn spawn(yaml: &str) -> Self {
        Self::spawn_by(Command::new(env!("CARGO_BIN_EXE_pointsman")), yaml)
    }

    /// As [`Pointsman::spawn`], by a command that may wrap the program, but must become it.
    pub fn spawn_by(mut command: Command, yaml: &str) -> Self {
        let directory = fresh_directory();
        write_config(&directory, yaml);
        let log = fs::File::create(directory.join("log")).unwrap();
        let child = command
            .args(["run", "-c"])
            .arg(directory.join("pointsman.yaml"))
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Pointsman { directory, child }
    }

    /// Waits until it is ready.
    #[track_caller]
    pub fn wait_ready(&mut self) {
        wait_until("/readyz", || {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "it ended with {ended:?}");
            self.ready()
        });
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// The directory that `DIR` stands for.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Its configuration file.
    pub fn config(&self) -> PathBuf {
        self.directory.join("pointsman.yaml")
    }

    /// Its admin server, as `--admin` names it.
    pub fn admin_address(&self) -> String {
        format!("unix:{}/admin.sock", self.directory.display())
    }

    /// Where a listener listens, its first address.
    pub fn address(&self, listener: &str) -> String {
        let status = self.status();
        let bind = &status["listeners"][listener]["bind"][0];
        bind.as_str().unwrap_or_else(|| panic!("no listener {listener}: {status}")).to_owned()
    }

    /// Connects to a listener.
    pub fn connect(&self, listener: &str) -> Stream {
        Stream::connect(&self.address(listener))
    }

    /// Asks the admin server; status and body.
    pub fn admin(&self, method: &str, path: &str) -> (u16, String) {
        self.admin_with(method, path, "")
    }

    /// As [`Pointsman::admin`], with a body.
    pub fn admin_with(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let answer = request(&self.directory.join("admin.sock"), method, path, body);
        answer.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// Changes a backend of the pool `pool`; its status then.
    pub fn change(&self, backend: &str, body: &str) -> Value {
        let path = format!("/api/v1/pools/pool/backends/{backend}");
        let (status, answer) = self.admin_with("POST", &path, body);
        assert_eq!(status, 200, "{path} {body}: {answer}");
        serde_json::from_str(&answer).unwrap()
    }

    /// The status of a backend of the pool `pool`.
    pub fn backend(&self, backend: &str) -> Value {
        let answer = self.get(&format!("/api/v1/pools/pool/backends/{backend}"));
        serde_json::from_str(&answer).unwrap()
    }

    /// The state of a backend of the pool `pool`.
    pub fn state(&self, backend: &str) -> String {
        self.backend(backend)["state"].as_str().expect("a state").to_owned()
    }

    /// Whether the pool `pool` is in panic.
    pub fn panics(&self) -> bool {
        self.metrics().value("pointsman_pool_panic", &[("pool", "pool")]) == 1.0
    }

    /// Sends some bytes to the listener `edge`; whether they and nothing else come back.
    pub fn echoes(&self) -> bool {
        echo(&self.address("edge")).is_ok_and(|answer| answer == b"hello")
    }

    /// Runs a command against its admin server.
    pub fn command(&self, arguments: &[&str]) -> Answer {
        command(&[arguments, &["--admin", &self.admin_address()]].concat())
    }

    fn get(&self, path: &str) -> String {
        let (status, body) = self.admin("GET", path);
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    /// Whether `/readyz` says 200.
    pub fn ready(&self) -> bool {
        let answer = request(&self.directory.join("admin.sock"), "GET", "/readyz", "");
        answer.is_ok_and(|(status, _)| status == 200)
    }

    /// A scrape.
    pub fn metrics(&self) -> Metrics {
        Metrics::parse(&self.get("/metrics"))
    }

    /// Waits for a counter to be what it is to be, where a peer can see what is counted a moment
    /// before: bytes and datagrams are counted when they have been sent. More than that is wrong at
    /// once.
    #[track_caller]
    pub fn expect_count(&self, expected: f64, count: impl Fn(&Metrics) -> f64) -> Metrics {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let metrics = self.metrics();
            let counted = count(&metrics);
            if counted == expected {
                return metrics;
            }
            assert!(counted < expected, "counted {counted}, more than {expected}");
            assert!(Instant::now() < deadline, "counted {counted} in {PATIENCE:?}, not {expected}");
            pass(Duration::from_millis(2));
        }
    }

    /// Waits until nothing is open; the record of everything that has been.
    pub fn all_records(&self) -> Vec<Record> {
        let ended = self.wait_idle().total("pointsman_connections_closed_total");
        self.access_log(ended as usize)
    }

    /// The status as JSON.
    pub fn status(&self) -> Value {
        serde_json::from_str(&self.get("/api/v1/status")).unwrap()
    }

    /// Replaces the configuration and reloads; the new generation, or what was wrong.
    pub fn reload(&self, yaml: &str) -> Result<u64, String> {
        self.configure(yaml);
        self.reload_file()
    }

    /// Replaces the configuration, of which the process learns nothing by that. Two lines of its
    /// own come first.
    pub fn configure(&self, yaml: &str) {
        write_config(&self.directory, yaml);
    }

    /// Reloads the file as it is.
    pub fn reload_file(&self) -> Result<u64, String> {
        let (status, body) = self.admin("POST", "/api/v1/reload");
        let answer: Value = serde_json::from_str(&body).unwrap();
        if status == 200 { Ok(answer["generation"].as_u64().unwrap()) } else { Err(body) }
    }

    /// Waits for the access log to have `count` records, and reads all that are there.
    pub fn access_log(&self, count: usize) -> Vec<Record> {
        self.records_in("access.log", count)
    }

    /// As [`Pointsman::access_log`], of a file by another name.
    pub fn records_in(&self, name: &str, count: usize) -> Vec<Record> {
        let lines = wait_for(&format!("{count} records in {name}"), || {
            let text = fs::read_to_string(self.directory.join(name)).unwrap_or_default();
            // The last line may be half written.
            let whole = text.rfind('\n').map_or(0, |end| end + 1);
            let lines: Vec<_> = text[..whole].lines().map(str::to_owned).collect();
            (lines.len() >= count).then_some(lines)
        });
        lines.iter().map(|line| Record::parse(line)).collect()
    }

    /// What it has logged so far; a thread of its own writes that.
    pub fn log(&self) -> String {
        wait_until("its log to be written", || asleep(self.id(), "log)"));
        self.written_log()
    }

    fn written_log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// How many records of a termination it says it has left out of the access log.
    pub fn left_out(&self, termination: &str) -> usize {
        let kind = format!("termination=\"{termination}\"");
        let number = |line: &str| -> Option<usize> {
            line.split("left_out=").nth(1)?.split_whitespace().next()?.parse().ok()
        };
        let log = self.log();
        log.lines().filter(|line| line.contains(&kind)).filter_map(number).sum()
    }

    /// Waits for a text in its log.
    #[track_caller]
    pub fn wait_for_log(&self, text: &str) {
        wait_until(&format!("{text:?} in the log"), || self.written_log().contains(text));
    }

    /// Waits for a text to have been logged so often, where what it tells of can be seen before;
    /// more often is wrong at once.
    #[track_caller]
    pub fn expect_logged(&self, times: usize, text: &str) {
        wait_until(&format!("{text:?} {times} times in the log"), || {
            let log = self.log();
            let logged = log.matches(text).count();
            assert!(logged <= times, "{text:?} {logged} times, not {times}: {log}");
            logged == times
        });
    }

    /// Waits until no connection is open, by every gauge there is; returns the last scrape.
    pub fn wait_idle(&self) -> Metrics {
        wait_for("all gauges to return to 0", || {
            let metrics = self.metrics();
            metrics.open_gauges().values().all(|value| *value == 0.0).then_some(metrics)
        })
    }

    /// Descriptors and threads.
    pub fn usage(&self) -> Usage {
        usage(self.id())
    }

    /// The least of what it uses in a short while: what the admin server has just answered may
    /// still be closing.
    pub fn usage_at_rest(&self) -> Usage {
        let looks = std::iter::repeat_with(|| {
            pass(Duration::from_millis(5));
            self.usage()
        });
        looks.take(40).min_by_key(|usage| usage.descriptors()).expect("40 looks")
    }

    /// Waits until it has taken everything that was sent to it, so that what is sent next cannot be
    /// received together with it.
    pub fn wait_received(&self) {
        wait_until("nothing to be under way", nothing_under_way);
        wait_until("the workers to sleep", || asleep(self.id(), "worker-"));
    }

    /// Waits until control has looked at everything that the workers have told it so far.
    pub fn wait_noticed(&self) {
        wait_until("control to sleep", || asleep(self.id(), "control"));
    }

    /// Resident memory in bytes.
    pub fn resident(&self) -> u64 {
        resident(self.id())
    }

    /// Time on a processor so far.
    pub fn cpu_time(&self) -> Duration {
        cpu_time(self.id())
    }

    /// Sets how many descriptors it may have from now on.
    pub fn limit_descriptors(&self, limit: u64) {
        // The hard limit stays: not everybody may raise it again.
        let maximum = getrlimit(Resource::Nofile).maximum;
        let limit = Rlimit { current: Some(limit), maximum };
        prlimit(Some(self.pid()), Resource::Nofile, limit).unwrap();
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Stops it in the middle of whatever it does, as SIGSTOP does, until SIGCONT.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
        wait_until("every thread to be stopped", || is_stopped(self.id()));
    }

    /// Whether it has not ended yet.
    pub fn running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits until it has ended by itself.
    pub fn wait(&mut self) -> ExitStatus {
        let child = &mut self.child;
        wait_for("it to end", || child.try_wait().unwrap())
    }

    /// Stops it by SIGTERM, which must end in exit code 0; its access log, complete now.
    pub fn stop(mut self) -> Vec<Record> {
        self.signal(Signal::TERM);
        let status = self.wait();
        assert_eq!(status.code(), Some(0), "{status}");
        self.access_log(0)
    }
}

impl Drop for Pointsman {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
        if std::thread::panicking() {
            let log = self.written_log();
            let tail = &log.as_bytes()[log.len().saturating_sub(TAIL)..];
            let tail = String::from_utf8_lossy(tail);
            eprintln!("--- log of pointsman {} ---\n{tail}---", self.id());
        }
        let _kept = fs::remove_dir_all(&self.directory);
    }
}

fn echo(address: &str) -> io::Result<Vec<u8>> {
    let stream = Stream::try_connect(address)?;
    let mut socket = &**stream.socket();
    socket.write_all(b"hello")?;
    socket.shutdown(Shutdown::Write)?;
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer)?;
    Ok(answer)
}

fn write_config(directory: &Path, yaml: &str) {
    let dir = directory.display().to_string();
    let mut own = format!("admin: {{ bind: \"unix:{dir}/admin.sock\" }}\n");
    if !yaml.contains("access_log:") {
        own += &format!("access_log: {{ path: \"{dir}/access.log\" }}\n");
    }
    own += &yaml.replace("DIR", &dir);
    fs::write(directory.join("pointsman.yaml"), own).unwrap();
}

/// A new directory under cargo's own for tests: short, because paths of unix sockets are.
pub fn fresh_directory() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("e{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _left_by_a_killed_test = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    directory
}
