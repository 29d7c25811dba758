//! `pointsman check`: what a configuration says, what is wrong with it and what looks wrong.

use std::io::{self, Write};
use std::process::ExitCode;

use super::args::Check;
use super::{FAILED, complain};
use crate::config::{self, Secrets};

pub fn run(args: &Check) -> anyhow::Result<ExitCode> {
    match config::check_file(&args.config) {
        Ok(checked) => {
            for warning in &checked.warnings {
                complain(&format!("{}:{warning}", args.config.display()));
            }
            let text = if args.effective {
                config::effective_yaml(&checked.config, Secrets::Shown)?
            } else {
                config::summary(&checked.config)
            };
            io::stdout().write_all(text.as_bytes())?;
            Ok(ExitCode::SUCCESS)
        }
        Err(errors) => {
            errors.lines().for_each(|line| complain(&line));
            Ok(ExitCode::from(FAILED))
        }
    }
}
