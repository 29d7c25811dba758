//! The program as a command that ends by itself.

use std::io::Read;
use std::process::{Child, Command, Stdio};

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
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut running = Running(child);
    let Running(child) = &mut running;
    let status = wait_for(&format!("{command:?} to end"), || child.try_wait().unwrap());
    let (mut stdout, mut stderr) = (String::new(), String::new());
    child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    let code = status.code().unwrap_or_else(|| panic!("{command:?}: {status}\n{stderr}"));
    Answer { code, stdout, stderr }
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
