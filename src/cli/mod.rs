//! The command line: arguments to library calls to exit code.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

mod args;
mod client;
mod table;

mod backend;
mod check;
mod demo;
mod explain;
mod reload;
mod run;
mod sessions;
mod simulate;
mod status;

use crate::state::AdminState;
use args::{Arguments, Command};

/// The operation failed.
const FAILED: u8 = 1;
/// Wrong usage.
const USAGE: u8 = 2;

/// Runs the program.
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version come this way too; a reader that has gone away is no failure.
            let _ = error.print();
            return u8::try_from(error.exit_code()).map_or(ExitCode::from(USAGE), ExitCode::from);
        }
    };
    let result = match arguments.command {
        Command::Run(args) => run::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Reload(args) => reload::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Drain(args) => backend::drain(&args),
        Command::Ready(args) => backend::set_admin(&args, AdminState::Ready),
        Command::Maintenance(args) => backend::set_admin(&args, AdminState::Maintenance),
        Command::Weight(args) => backend::set_weight(&args),
        Command::Sessions(args) => sessions::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Simulate(args) => simulate::run(&args),
    };
    match result {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("pointsman: {error:#}"));
            ExitCode::from(FAILED)
        }
    }
}

/// Writes a line to stderr, which may be closed: `eprintln!` would panic then.
fn complain(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Whether whoever read our output has enough, as in `pointsman status | head -1`.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    kind == Some(io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_pipe_is_told_from_other_errors() {
        let error = |kind: io::ErrorKind| anyhow::Error::from(io::Error::from(kind));
        assert!(is_broken_pipe(&error(io::ErrorKind::BrokenPipe)));
        assert!(!is_broken_pipe(&error(io::ErrorKind::StorageFull)));
        assert!(!is_broken_pipe(&anyhow::anyhow!("broken pipe")));
    }
}
