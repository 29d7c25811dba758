//! What others ask of a worker about its sessions: the admin server lists and ends them, control
//! has those of a backend that went down closed.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use ahash::AHashMap;
use tokio::sync::oneshot;

use super::roll::Entry;
use super::worker::{SPREAD_STEP, Worker};
use crate::health::State;
use crate::state::{Closing, Query, Termination};

impl Worker {
    /// Answers the admin server, one question after the other.
    pub async fn answer_queries(self: Rc<Self>) {
        let queries = &self.process.workers.shard(self.index).queries;
        let Some(mut queries) = queries.take() else { return };
        while let Some(query) = queries.recv().await {
            match query {
                Query::Largest { limit, answer } => {
                    give(answer, self.roll.largest(limit).await);
                }
                Query::End { id, answer } => {
                    give(answer, self.roll.end(id, Termination::Drained));
                }
            }
        }
    }

    /// Closes sessions of backends that have gone down, where that is asked for.
    pub async fn close_on_down(self: Rc<Self>) {
        loop {
            let closings = self.process.registry.closings().next(self.index).await;
            // Others may follow while it goes on.
            tokio::task::spawn_local(self.clone().close(closings));
        }
    }

    async fn close(self: Rc<Self>, closings: Vec<Closing>) {
        let mut sessions = self.sessions_of(&closings).await;
        let counts: Vec<usize> = sessions.iter().map(Vec::len).collect();
        while sessions.iter().any(|sessions| !sessions.is_empty()) {
            for ((closing, count), sessions) in closings.iter().zip(&counts).zip(&mut sessions) {
                close_share(closing, *count, sessions);
            }
            self.roll.told();
            tokio::time::sleep(SPREAD_STEP).await;
        }
        if let Some(last) = closings.iter().map(|closing| closing.until).max() {
            tokio::time::sleep_until(last.into()).await;
        }
        // Those that were just being connected when it began.
        let late = self.sessions_of(&closings).await;
        for (closing, mut late) in closings.iter().zip(late) {
            close_share(closing, 0, &mut late);
        }
        self.roll.told();
    }

    /// Of each of these backends, those that nobody has told to end.
    async fn sessions_of(&self, closings: &[Closing]) -> Vec<Vec<Rc<Entry>>> {
        let backends = closings.iter().map(|closing| Arc::as_ptr(&closing.backend));
        let indices: AHashMap<_, usize> = backends.zip(0..).collect();
        let mut found: Vec<Vec<Rc<Entry>>> = closings.iter().map(|_| Vec::new()).collect();
        self.roll
            .visit(|entry| {
                let Some(&index) = entry.kept_on().and_then(|b| indices.get(&b)) else { return };
                // Who came later came in panic, knowing it to be down.
                if entry.started <= closings[index].since {
                    found[index].push(entry.clone());
                }
            })
            .await;
        found
    }
}

/// Closes as many of these sessions, which were `count` at first, as are due by now; none any more
/// if their backend has come up again.
fn close_share(closing: &Closing, count: usize, sessions: &mut Vec<Rc<Entry>>) {
    if closing.backend.state() != State::Down {
        sessions.clear();
    }
    let left = closing.until.saturating_duration_since(Instant::now());
    let whole = closing.until.saturating_duration_since(closing.since).as_nanos().max(1);
    let kept = count as u128 * left.as_nanos() / whole;
    let kept = usize::try_from(kept).map_or(sessions.len(), |kept| kept.min(sessions.len()));
    for entry in sessions.drain(kept..) {
        entry.order.give(Termination::BackendDown);
    }
}

fn give<T>(answer: oneshot::Sender<T>, value: T) {
    // Whoever asked may have gone away.
    let _gone = answer.send(value);
}
