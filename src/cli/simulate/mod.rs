//! `pointsman simulate`: what a policy would do, how large a fleet has to be, and what a fan-out
//! makes of rare slow answers.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::CommandFactory;
use clap::error::ErrorKind;

use super::USAGE;
use super::args::Arguments;
use crate::simulate::Simulation;

mod args;
mod chart;
mod json;
mod pool;
mod sums;
mod table;
mod values;

#[cfg(test)]
mod tests;

pub use args::Simulate;

use args::{Format, Nonsense, Sum, Workload};

pub fn run(args: &Simulate) -> anyhow::Result<ExitCode> {
    let text = match args {
        Simulate::Sum(Sum::Plan(plan)) => sums::plan(plan)?,
        Simulate::Sum(Sum::Tail(tail)) => sums::tail(tail)?,
        Simulate::Workload(workload) => match simulation(workload) {
            Ok(simulation) => answer(workload, &simulation)?,
            Err(nonsense) => return Ok(wrong_usage(&nonsense.to_string())),
        },
    };
    io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn simulation(workload: &Workload) -> Result<Simulation, Nonsense> {
    Ok(Simulation::new(workload.scenario()?, &workload.specs())?)
}

fn answer(workload: &Workload, simulation: &Simulation) -> anyhow::Result<String> {
    let reports = simulation.run()?;
    if workload.format == Format::Json {
        return json::pretty(&json::Answer::new(simulation.scenario(), &reports));
    }
    let mut text = table::render(simulation.scenario(), &reports);
    if !workload.no_chart {
        text += &chart::render(&reports);
    }
    Ok(text)
}

/// As if the parser had found it.
fn wrong_usage(message: &str) -> ExitCode {
    let mut command = Arguments::command();
    command.build();
    let command = command.find_subcommand_mut("simulate").expect("it is one of the commands");
    // A reader that has gone away is no failure.
    let _ = command.error(ErrorKind::ValueValidation, message).print();
    ExitCode::from(USAGE)
}
