//! `pointsman run`: in the foreground until a signal ends it.

use std::process::ExitCode;

use super::args::Run;
use super::{FAILED, USAGE, complain};
use crate::config;
use crate::observe::log;
use crate::service::Service;

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
    // A second initialisation in one process keeps the first one's log.
    let log = log::init(config.log).ok();
    Service::start(config, args.config.clone(), log)?.wait();
    Ok(ExitCode::SUCCESS)
}
