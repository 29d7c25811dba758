//! The roll of a worker: all its sessions, for whoever lists them or wants them to end.
//!
//! A session writes what it knows of itself into its entry, in plain cells: nothing is added up or
//! looked up while nobody asks.

use std::cell::{Cell, OnceCell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ahash::AHashMap;
use tokio::sync::Notify;

use super::order::Order;
use crate::config::Protocol;
use crate::limits::QUERY_BATCH;
use crate::state::{
    BackendState, Direction, ListenerState, SessionReport, SessionReports, Stage, Termination,
};

/// A session, as itself and the roll have it.
#[derive(Debug)]
pub(super) struct Entry {
    /// Unique in the process, and nearly so across restarts.
    pub id: u64,
    pub listener: Arc<ListenerState>,
    /// What the client speaks: of UDP it is a flow.
    pub protocol: Protocol,
    /// The client; `None` on a unix listener.
    pub client: Option<SocketAddr>,
    /// When it was accepted.
    pub started: Instant,
    /// By whom it is told to end.
    pub order: Order,
    /// The host name in its hello.
    sni: OnceCell<Box<str>>,
    stage: RefCell<Stage>,
    /// How it ended, and after how long.
    ended: Cell<Option<(Termination, Duration)>>,
    bytes_in: Cell<u64>,
    bytes_out: Cell<u64>,
}

impl Entry {
    /// One that was just accepted.
    pub fn new(
        id: u64,
        listener: Arc<ListenerState>,
        client: Option<SocketAddr>,
        protocol: Protocol,
    ) -> Self {
        Entry {
            id,
            listener,
            protocol,
            client,
            started: Instant::now(),
            order: Order::default(),
            sni: OnceCell::new(),
            stage: RefCell::new(Stage::Preread),
            ended: Cell::new(None),
            bytes_in: Cell::new(0),
            bytes_out: Cell::new(0),
        }
    }

    /// Notes the name that it asks for.
    pub fn asks_for(&self, name: &str) {
        self.sni.get_or_init(|| name.into());
    }

    /// That name.
    pub fn sni(&self) -> Option<&str> {
        self.sni.get().map(|name| &**name)
    }

    /// Notes how far it has come.
    pub fn comes_to(&self, stage: Stage) {
        *self.stage.borrow_mut() = stage;
    }

    /// Adds bytes that were passed on.
    pub fn passed(&self, direction: Direction, bytes: u64) {
        let count = match direction {
            Direction::In => &self.bytes_in,
            Direction::Out => &self.bytes_out,
        };
        count.set(count.get() + bytes);
    }

    /// Bytes passed on to the backend, and to the client.
    pub fn bytes(&self) -> (u64, u64) {
        (self.bytes_in.get(), self.bytes_out.get())
    }

    /// Says how it ends, now. The first word on it is the last.
    pub fn ends(&self, termination: Termination) {
        if self.ended.get().is_none() {
            self.ended.set(Some((termination, self.started.elapsed())));
        }
    }

    /// How it ended, and after how long.
    pub fn ended(&self) -> Option<(Termination, Duration)> {
        self.ended.get()
    }

    /// The backend it is connected to, if nobody has told it to end.
    pub fn kept_on(&self) -> Option<*const BackendState> {
        match &*self.stage.borrow() {
            Stage::Relaying(backend) => {
                self.order.given().is_none().then_some(Arc::as_ptr(backend))
            }
            Stage::Preread | Stage::Connecting(_) => None,
        }
    }

    fn size(&self) -> u64 {
        self.bytes_in.get().saturating_add(self.bytes_out.get())
    }

    fn report(&self) -> SessionReport {
        SessionReport {
            id: self.id,
            listener: self.listener.clone(),
            protocol: self.protocol,
            client: self.client,
            sni: self.sni.get().cloned(),
            stage: self.stage.borrow().clone(),
            ended: self.ended.get().is_some(),
            age: self.started.elapsed(),
            bytes_in: self.bytes_in.get(),
            bytes_out: self.bytes_out.get(),
        }
    }
}

/// All sessions of a worker.
#[derive(Debug, Default)]
pub(super) struct Roll {
    entries: RefCell<AHashMap<u64, Rc<Entry>>>,
    /// Wakes when the last one has ended.
    emptied: Notify,
    /// Wakes when some may have been told to end. Sessions hear of it themselves, flows do not.
    ordered: Notify,
}

impl Roll {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.borrow().len()
    }

    /// Enters a session.
    pub fn enter(&self, entry: Rc<Entry>) {
        self.entries.borrow_mut().insert(entry.id, entry);
    }

    /// Strikes a session out.
    pub fn leave(&self, id: u64) {
        let mut entries = self.entries.borrow_mut();
        entries.remove(&id);
        if entries.is_empty() {
            self.emptied.notify_one();
        }
    }

    /// Waits until there is none.
    pub async fn emptied(&self) {
        while self.len() > 0 {
            self.emptied.notified().await;
        }
    }

    /// How many nobody has told to end.
    pub fn kept(&self) -> usize {
        self.entries.borrow().values().filter(|entry| entry.order.given().is_none()).count()
    }

    /// Tells so many of them to end.
    pub fn order_end(&self, count: usize, reason: Termination) {
        let entries = self.entries.borrow();
        let kept = entries.values().filter(|entry| entry.order.given().is_none());
        kept.take(count).for_each(|entry| entry.order.give(reason));
        self.ordered.notify_one();
    }

    /// Says that some have been told to end.
    pub fn told(&self) {
        self.ordered.notify_one();
    }

    /// Waits until some may have been told to end.
    pub async fn ordered(&self) {
        self.ordered.notified().await;
    }

    /// Tells one of them to end; false if there is none with this id, or it is over.
    pub fn end(&self, id: u64, reason: Termination) -> bool {
        let entries = self.entries.borrow();
        self.ordered.notify_one();
        let open = entries.get(&id).filter(|entry| entry.ended().is_none());
        open.inspect(|entry| entry.order.give(reason)).is_some()
    }

    /// Shows all of them to `look`, with pauses in which the worker serves them.
    pub async fn visit(&self, mut look: impl FnMut(&Rc<Entry>)) {
        let ids: Vec<u64> = self.entries.borrow().keys().copied().collect();
        for batch in ids.chunks(QUERY_BATCH) {
            self.look_up(batch, &mut look);
            tokio::task::yield_now().await;
        }
    }

    fn look_up(&self, ids: &[u64], look: impl FnMut(&Rc<Entry>)) {
        let entries = self.entries.borrow();
        ids.iter().filter_map(|id| entries.get(id)).for_each(look);
    }

    /// At most `limit` of them, the largest.
    pub async fn largest(&self, limit: usize) -> SessionReports {
        let mut total = 0;
        let mut largest = BinaryHeap::new();
        self.visit(|entry| {
            total += 1;
            largest.push(Reverse((entry.size(), entry.id)));
            if largest.len() > limit {
                largest.pop();
            }
        })
        .await;
        let entries = self.entries.borrow();
        let known = largest.iter().filter_map(|Reverse((_, id))| entries.get(id));
        SessionReports { total, largest: known.map(|entry| entry.report()).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Registry;

    fn roll(registry: &Registry, sizes: &[u64]) -> Roll {
        let (roll, listener) = (Roll::default(), registry.listener(&Arc::from("edge")));
        for (id, size) in (1..).zip(sizes) {
            let entry = Entry::new(id, listener.clone(), None, Protocol::Tcp);
            entry.passed(Direction::In, size / 2);
            entry.passed(Direction::Out, size - size / 2);
            roll.enter(Rc::new(entry));
        }
        roll
    }

    #[tokio::test]
    async fn the_largest_are_listed() {
        let registry = Registry::new(1);
        let sizes: Vec<u64> = (0..3000).map(|n| n * 7919 % 3000).collect();
        let roll = roll(&registry, &sizes);
        for (limit, expected) in [(1, 1), (10, 10), (10_000, 3000)] {
            let SessionReports { total, largest } = roll.largest(limit).await;
            let mut got: Vec<u64> = largest.iter().map(|r| r.bytes_in + r.bytes_out).collect();
            got.sort_unstable();
            assert_eq!((total, got), (3000, (3000 - expected..3000).collect()));
        }
    }

    #[tokio::test]
    async fn each_is_told_to_end_once() {
        let registry = Registry::new(1);
        let roll = roll(&registry, &[0; 10]);
        roll.order_end(3, Termination::Shutdown);
        assert_eq!((roll.kept(), roll.len()), (7, 10));
        roll.order_end(3, Termination::Shutdown);
        assert_eq!(roll.kept(), 4);
        assert!(roll.end(10, Termination::Drained) && !roll.end(11, Termination::Drained));
        let mut reasons = Vec::new();
        roll.visit(|entry| reasons.push(entry.order.given())).await;
        assert_eq!(reasons.iter().filter(|r| **r == Some(Termination::Shutdown)).count(), 6);
        roll.visit(|entry| entry.ends(Termination::ClientClosed)).await;
        assert!(!roll.end(1, Termination::Drained), "it is over");
        (1..=10).for_each(|id| roll.leave(id));
        roll.emptied().await;
    }

    #[tokio::test]
    async fn a_backend_has_those_that_are_connected_to_it() {
        let registry = Registry::new(1);
        let pool = registry.pool(&Arc::from("www"));
        let [first, second] = ["10.0.0.1:1", "10.0.0.2:1"].map(|address| {
            let address = address.parse().unwrap();
            registry.backend(&pool, &Arc::from("b"), &address, crate::health::State::Up)
        });
        let roll = roll(&registry, &[0; 5]);
        let stages = [
            Stage::Preread,
            Stage::Connecting(pool),
            Stage::Relaying(first.clone()),
            Stage::Relaying(second),
            Stage::Relaying(first.clone()),
        ];
        for (id, stage) in (1..).zip(stages) {
            roll.entries.borrow()[&id].comes_to(stage);
        }
        roll.end(5, Termination::Drained);
        let mut found = Vec::new();
        roll.visit(|entry| {
            if entry.kept_on() == Some(Arc::as_ptr(&first)) {
                found.push(entry.id);
            }
        })
        .await;
        assert_eq!(found, [3]);
    }
}
