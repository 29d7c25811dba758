//! What the process does on a signal.

use std::io;
use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::state::process::Command;
use crate::state::{LogMessage, Process};

/// Starts to handle signals: reload, stop, reopen logs.
///
/// # Errors
///
/// A handler could not be installed.
pub fn handle(process: &Arc<Process>) -> io::Result<()> {
    let mut hangup = signal(SignalKind::hangup())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut reopen = signal(SignalKind::user_defined1())?;
    let process = process.clone();
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = hangup.recv() => reload(&process),
                _ = terminate.recv() => stop(&process, "SIGTERM"),
                _ = interrupt.recv() => stop(&process, "SIGINT"),
                _ = reopen.recv() => reopen_logs(&process),
            }
        }
    });
    Ok(())
}

fn reload(process: &Process) {
    // The outcome is in the log; nobody waits for an answer. A full queue means that reloads
    // are waiting already, and they will read the newest file.
    let (answer, _nobody) = oneshot::channel();
    if process.commands.try_send(Command::Reload(answer)).is_err() {
        tracing::warn!("SIGHUP: a reload is waiting already");
    }
}

fn stop(process: &Process, name: &str) {
    tracing::info!(signal = name, "asked to stop");
    process.stops.send_modify(|count| *count += 1);
}

fn reopen_logs(process: &Process) {
    if process.access_log.try_send(LogMessage::Reopen).is_err() {
        tracing::warn!("SIGUSR1: the access log's queue is full; send it again");
    }
}
