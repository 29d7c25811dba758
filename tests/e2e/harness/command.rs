//! The program as a command: one that ends by itself, or one beside the test.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::pointsman::fresh_directory;
use super::wait_for;

/// What a command left behind.
#[derive(Debug)]
pub struct Answer {
    /// The exit code.
    pub code: i32,
    /// What it printed.
    pub stdout: String,
    /// What it complained of.
    pub stderr: String,
}

/// Runs pointsman to its end.
pub fn command(arguments: &[&str]) -> Answer {
    finish(Command::new(env!("CARGO_BIN_EXE_pointsman")).args(arguments))
}

/// Runs any program to its end, which must come in time. Its output must fit into a pipe.
pub fn finish(command: &mut Command) -> Answer {
    run(command.stdin(Stdio::null()))
}

/// As [`finish`], with a file as its input.
pub fn finish_reading(command: &mut Command, input: &Path) -> Answer {
    run(command.stdin(File::open(input).unwrap()))
}

fn run(command: &mut Command) -> Answer {
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut running = Running(child);
    let Running(child) = &mut running;
    let status = wait_for(&format!("{command:?} to end"), || child.try_wait().unwrap());
    let stdout = text(child.stdout.take().unwrap());
    let stderr = text(child.stderr.take().unwrap());
    let code = status.code().unwrap_or_else(|| panic!("{command:?}: {status}\n{stderr}"));
    Answer { code, stdout, stderr }
}

/// Everything; programs print what their peers sent, which need not be text.
fn text(mut pipe: impl Read) -> String {
    let mut bytes = Vec::new();
    pipe.read_to_end(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Answer {
    /// What it printed; it must have succeeded.
    pub fn success(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.stdout
    }
}

/// Killed and reaped when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Pointsman with any arguments, running beside the test. Killed and reaped when dropped.
#[derive(Debug)]
pub struct Background {
    directory: PathBuf,
    child: Child,
}

impl Background {
    /// Starts it.
    pub fn start(arguments: &[&str]) -> Self {
        let directory = fresh_directory();
        let file = |name| File::create(directory.join(name)).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_pointsman"))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(file("stdout"))
            .stderr(file("stderr"))
            .spawn()
            .unwrap();
        Background { directory, child }
    }

    /// What it has printed so far.
    pub fn stdout(&self) -> String {
        fs::read_to_string(self.directory.join("stdout")).unwrap()
    }

    /// What it has logged so far.
    pub fn stderr(&self) -> String {
        fs::read_to_string(self.directory.join("stderr")).unwrap()
    }

    /// Waits for `before` in its log; the word after it.
    pub fn logged(&self, before: &str) -> String {
        wait_for(&format!("{before} in the log"), || {
            let log = self.stderr();
            let (_, after) = log.rsplit_once(before)?;
            let (word, _) = after.split_once(|c: char| c.is_whitespace())?;
            Some(word.to_owned())
        })
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its exit code.
    pub fn wait(&mut self) -> Option<i32> {
        let child = &mut self.child;
        wait_for("it to end", || child.try_wait().unwrap()).code()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- {} ---\n{}---", self.directory.display(), self.stderr());
        }
        let _kept = fs::remove_dir_all(&self.directory);
    }
}
