//! `pointsman run`: in the foreground until a signal ends it.

use std::process::ExitCode;
use std::time::Duration;

use super::args::Run;
use super::{FAILED, USAGE, complain};
use crate::config;
use crate::observe::log;
use crate::service::Service;

/// What the log gets to write its last lines.
const LAST_LINES: Duration = Duration::from_secs(1);

pub fn run(args: &Run) -> anyhow::Result<ExitCode> {
    let (loaded, wrong) = match &args.config {
        Some(path) => (config::load(path), FAILED),
        None => {
            let (balance, admin) = (args.balance.as_deref(), args.admin.as_deref());
            (config::from_flags(&args.listen, &args.backend, balance, admin), USAGE)
        }
    };
    let config = match loaded {
        Ok(config) => config,
        Err(errors) => {
            errors.lines().for_each(|line| complain(&line));
            return Ok(ExitCode::from(wrong));
        }
    };
    let log = log::init(config.log)?;
    let stopped = Service::start(config, args.config.clone(), Some(log.clone()))
        .map_err(anyhow::Error::from)
        .and_then(|service| Ok(service.wait()?));
    log.flush(LAST_LINES);
    stopped.map(|()| ExitCode::SUCCESS)
}
