//! Connections that one worker accepts and another serves. The kernel spreads new connections over
//! the workers' sockets by hash, so that long sessions can pile up on one worker: it hands a new
//! one to another, drawn at random, if that has clearly fewer. Two choices keep the fullest close
//! to the mean (see `balance::p2c`).

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tokio::sync::mpsc;

use super::accept::admit;
use super::session::Accepted;
use super::worker::Worker;
use crate::limits::HANDOVERS;
use crate::snapshot::Listener;
use crate::state::{Phase, Process};

/// Ways to every worker.
#[derive(Clone, Debug)]
pub struct Exchange(Arc<[mpsc::Sender<Handed>]>);

/// What others hand to a worker.
#[derive(Debug)]
pub struct Inbox(mpsc::Receiver<Handed>);

/// A connection that was just accepted: a plain descriptor, which nobody has registered yet.
#[derive(Debug)]
struct Handed {
    accepted: Accepted,
    listener: Arc<Listener>,
}

/// An exchange for so many workers, and their inboxes.
pub fn exchange(workers: usize) -> (Exchange, Vec<Inbox>) {
    let (ways, inboxes): (Vec<_>, Vec<_>) = (0..workers)
        .map(|_| mpsc::channel(HANDOVERS))
        .map(|(way, inbox)| (way, Inbox(inbox)))
        .unzip();
    (Exchange(ways.into()), inboxes)
}

/// Sessions that a worker has more than another before it hands one over: a sixteenth, so that few
/// long sessions are spread well, and four, so that short ones are left where they are.
fn is_clearly_more(own: u32, other: u32) -> bool {
    own > other.saturating_add(other / 16).saturating_add(4)
}

impl Exchange {
    /// Serves the connection on the worker that has accepted it, or on another that is less busy.
    pub(super) fn serve(&self, worker: &Rc<Worker>, listener: Arc<Listener>, accepted: Accepted) {
        let handed = Handed { accepted, listener };
        let Handed { accepted, listener } = match self.way(worker) {
            None => handed,
            Some(index) => {
                let incoming = &worker.process.workers.shard(index).incoming;
                incoming.fetch_add(1, Relaxed);
                // One that has stopped, or is behind, is not less busy.
                let Err(refused) = self.0[index].try_send(handed) else { return };
                incoming.fetch_sub(1, Relaxed);
                refused.into_inner()
            }
        };
        admit(worker, listener, accepted);
    }

    /// The worker that is to have a connection in the place of this one.
    fn way(&self, worker: &Worker) -> Option<usize> {
        let others = self.0.len().checked_sub(1).filter(|&others| others > 0)?;
        let step = 1 + worker.with_rng(|rng| rng.usize(..others));
        let other = (worker.index + step) % self.0.len();
        let own = busy(&worker.process, worker.index);
        is_clearly_more(own, busy(&worker.process, other)).then_some(other)
    }
}

fn busy(process: &Process, worker: usize) -> u32 {
    let state = process.workers.shard(worker);
    state.active.load(Relaxed).saturating_add(state.incoming.load(Relaxed))
}

impl Inbox {
    /// Serves what comes, until the process stops accepting.
    pub(super) async fn run(mut self, worker: Rc<Worker>) {
        let mut phases = worker.process.phase.subscribe();
        let over = |phase: &Phase| matches!(phase, Phase::Draining { .. } | Phase::Stopping);
        let mut over = std::pin::pin!(phases.wait_for(over));
        loop {
            tokio::select! {
                handed = self.0.recv() => match handed {
                    Some(handed) => take(&worker, handed),
                    None => return,
                },
                _ = &mut over => break,
            }
        }
        // Whoever still sends is told to keep it; what was sent before is served.
        self.0.close();
        while let Some(handed) = self.0.recv().await {
            take(&worker, handed);
        }
    }
}

fn take(worker: &Rc<Worker>, handed: Handed) {
    worker.process.workers.shard(worker.index).incoming.fetch_sub(1, Relaxed);
    admit(worker, handed.listener, handed.accepted);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_clear_differences_count() {
        for (own, other, expected) in [
            (0, 0, false),
            (4, 0, false),
            (5, 0, true),
            (104, 94, true),
            (103, 94, false),
            (u32::MAX, u32::MAX, false),
        ] {
            assert_eq!(is_clearly_more(own, other), expected, "{own} {other}");
        }
    }
}
