//! `pointsman reload`: asks the running process to reload, and prints its answer.

use std::io::{self, Write};
use std::process::ExitCode;

use serde::Deserialize;

use super::args::Reload;
use super::client::Client;
use super::{FAILED, complain};
use crate::limits::ADMIN_RELOAD;

/// Either of what the admin server answers.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Answer {
    Done { generation: u64 },
    Refused { errors: Vec<String> },
}

pub fn run(args: &Reload) -> anyhow::Result<ExitCode> {
    let client = Client::new(&args.admin)?;
    let reply = client.post("/api/v1/reload", String::new(), ADMIN_RELOAD)?;
    let reply = if reply.status == 422 { reply } else { reply.success()? };
    match reply.json()? {
        Answer::Done { generation } => {
            writeln!(io::stdout(), "reloaded: generation {generation}")?;
            Ok(ExitCode::SUCCESS)
        }
        Answer::Refused { errors } => {
            errors.iter().for_each(|line| complain(line));
            complain("pointsman: not reloaded; the old configuration stays in force");
            Ok(ExitCode::from(FAILED))
        }
    }
}
