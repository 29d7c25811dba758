//! From running to stopped: delay, grace, the end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::timeout;

use crate::snapshot::Snapshot;
use crate::state::{Phase, Process};

/// Waits for a request to stop and takes the process through its last phases. Workers end by
/// themselves as soon as they are draining and have no session left.
pub async fn run(process: Arc<Process>, snapshots: watch::Receiver<Arc<Snapshot>>) {
    let mut stops = process.stops.subscribe();
    asked(&mut stops, 1).await;
    let shutdown = snapshots.borrow().config.shutdown;
    if !shutdown.delay.is_zero() {
        let delay_ms = shutdown.delay.as_millis();
        tracing::info!(delay_ms, "leaving: not ready any more, still accepting");
        set(&process, Phase::Leaving);
        wait(&mut stops, shutdown.delay).await;
    }
    if *stops.borrow() < 2 && !shutdown.grace.is_zero() {
        let sessions = process.sessions.0.load(std::sync::atomic::Ordering::Relaxed);
        let grace_ms = shutdown.grace.as_millis();
        tracing::info!(sessions, grace_ms, "draining: sessions may finish");
        let since = Instant::now();
        set(&process, Phase::Draining { since, until: since + shutdown.grace });
        wait(&mut stops, shutdown.grace).await;
    }
    set(&process, Phase::Stopping);
}

fn set(process: &Process, phase: Phase) {
    process.phase.send_replace(phase);
}

/// Waits for `time`, or until asked to stop at once.
async fn wait(stops: &mut watch::Receiver<u32>, time: Duration) {
    // Both ends of the wait are followed by a look at how often it was asked.
    let _over = timeout(time, asked(stops, 2)).await;
}

async fn asked(stops: &mut watch::Receiver<u32>, times: u32) {
    if stops.wait_for(|count| *count >= times).await.is_err() {
        tracing::debug!("nobody is left who could ask to stop");
    }
}
