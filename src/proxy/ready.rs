//! Connections to backends that are established before anybody needs them (`connect.ready`).
//!
//! Of each backend a worker has a shelf, and the shelf some slots. A slot is a task that goes in a
//! circle: wait until the backend is usable, connect, put the connection on the shelf; wait until
//! it is used, or closed by the backend, or too old. Nothing is ever sent on such a connection and
//! nothing read from it: what a backend says first waits in it for its session.
//!
//! A shelf begins with one attempt, and goes back to that as soon as something goes wrong: the other
//! slots wait for its outcome, and it for a backoff. So a backend that restarts meets no storm.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ahash::AHashMap;
use tokio::sync::{Mutex, Notify, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::place::{connected_ahead, met_ahead};
use super::worker::Worker;
use crate::health::backoff::Backoff;
use crate::health::outlier::Failure;
use crate::limits::{READY_ATTEMPTS, READY_BACKOFF_BASE, READY_BACKOFF_CAP, READY_SETTLED};
use crate::net::connect::connect;
use crate::net::{Socket, close};
use crate::snapshot::{Pool, Snapshot};
use crate::state::{BackendState, ConnectError, Kept};
use crate::sys;

/// Before the next attempt, when one has failed.
const BACKOFF: Backoff = Backoff { base: READY_BACKOFF_BASE, cap: READY_BACKOFF_CAP };

/// Connections live three quarters of `ready_max_age` to all of it, so that those that were made
/// together do not end together.
const AGE_SPREAD: f64 = 0.25;

/// The connections that one worker keeps ready.
pub(super) struct Stash {
    /// By the address of the backend's state in memory, which the shelf holds.
    shelves: RefCell<AHashMap<*const BackendState, Rc<Shelf>>>,
    /// Attempts that may be under way.
    attempts: Semaphore,
}

impl Default for Stash {
    fn default() -> Self {
        Stash { shelves: RefCell::default(), attempts: Semaphore::new(READY_ATTEMPTS) }
    }
}

impl Worker {
    /// An established connection to the backend of this index, if the pool keeps any and one is
    /// left. What the backend has closed meanwhile is dropped: nothing was sent on it.
    pub fn take_ready(&self, pool: &Pool, index: usize) -> Option<Socket> {
        if pool.ready.count == 0 {
            return None;
        }
        let backend = &pool.backends[index].state;
        // A trial, or a connection in panic, is to find out what the backend is like now.
        let usable = backend.standing().is_usable();
        let shelf = self.ready.shelves.borrow().get(&Arc::as_ptr(backend)).cloned();
        let taken = shelf.filter(|_| usable).and_then(|shelf| shelf.take(self.index));
        match taken {
            Some(_) => pool.state.ready_used(self.index),
            None => pool.state.ready_missed(self.index),
        }
        taken
    }

    /// Keeps ready what this snapshot asks for, and nothing else.
    pub fn keep_ready(self: &Rc<Self>, snapshot: &Snapshot) {
        let mut before = self.ready.shelves.take();
        let mut shelves = AHashMap::new();
        for pool in snapshot.kept_ready() {
            for (index, backend) in pool.backends.iter().enumerate() {
                let key = Arc::as_ptr(&backend.state);
                let known = before.remove(&key);
                let shelf = known.unwrap_or_else(|| Rc::new(Shelf::new(&backend.state)));
                shelf.follow(self, Plan { pool: pool.clone(), index });
                shelves.insert(key, shelf);
            }
        }
        before.values().for_each(|shelf| shelf.end());
        self.ready.shelves.replace(shelves);
    }

    /// Closes everything, and gives it `within` to end well.
    pub async fn close_ready(&self, within: Duration) {
        let shelves = self.ready.shelves.take();
        let mut closing = JoinSet::new();
        for shelf in shelves.values() {
            shelf.end();
            for socket in shelf.clear().into_iter().filter(|socket| socket.readable) {
                closing.spawn_local(close::by_fin(socket));
            }
        }
        // Whoever has not ended by then is closed all the same.
        let _late = timeout(within, closing.join_all()).await;
    }
}

/// What is to be kept ready to one backend.
struct Plan {
    pool: Arc<Pool>,
    index: usize,
}

/// What a slot is to do.
enum Task {
    /// Keep a connection.
    Keep(Rc<Plan>),
    /// Keep none for now.
    Wait,
    /// There are too many slots, or nothing is wanted any more.
    End,
}

/// The connections to one backend.
struct Shelf {
    backend: Arc<BackendState>,
    /// `None` once nothing is wanted any more.
    plan: RefCell<Option<Rc<Plan>>>,
    /// Wakes all slots when that changes.
    replanned: Notify,
    /// How many slots there are, counted by [`Slot`].
    slots: Cell<u16>,
    /// The oldest first.
    idle: RefCell<Vec<Rc<Idle>>>,
    /// The last attempt has succeeded, and no connection been closed since.
    trusted: Cell<bool>,
    /// Held by the only attempt there may be otherwise.
    turn: Mutex<()>,
    /// What went wrong, one after the other.
    failures: Cell<u32>,
    /// No attempt before then.
    not_before: Cell<Option<Instant>>,
}

/// An unused connection.
struct Idle {
    /// `None` once it is taken.
    held: RefCell<Option<Held>>,
    taken: Notify,
    since: Instant,
    until: Instant,
}

struct Held {
    socket: Socket,
    kept: Kept,
}

/// Why a connection is not kept any more.
enum Over {
    Taken,
    Closed,
    Old,
}

impl Shelf {
    fn new(backend: &Arc<BackendState>) -> Self {
        Shelf {
            backend: backend.clone(),
            plan: RefCell::new(None),
            replanned: Notify::new(),
            slots: Cell::new(0),
            idle: RefCell::default(),
            trusted: Cell::new(false),
            turn: Mutex::new(()),
            failures: Cell::new(0),
            not_before: Cell::new(None),
        }
    }

    /// Goes on by this plan. Slots that are too many end by themselves.
    fn follow(self: &Rc<Self>, worker: &Rc<Worker>, plan: Plan) {
        let count = plan.pool.ready.count;
        self.plan.replace(Some(Rc::new(plan)));
        self.replanned.notify_waiters();
        while self.slots.get() < count {
            let slot = Slot::new(self, worker);
            tokio::task::spawn_local(slot.run());
        }
    }

    /// Nothing is wanted any more.
    fn end(&self) {
        self.plan.take();
        self.replanned.notify_waiters();
    }

    fn task(&self) -> Task {
        match &*self.plan.borrow() {
            Some(plan) if self.slots.get() <= plan.pool.ready.count => {
                if plan.pool.keeps_ready(plan.index) {
                    Task::Keep(plan.clone())
                } else {
                    Task::Wait
                }
            }
            _ => Task::End,
        }
    }

    /// Waits for a task that is `wanted`.
    async fn task_that(&self, wanted: fn(&Task) -> bool) -> Task {
        loop {
            // Before the look, so that no change after it is missed.
            let (replanned, changed) = (self.replanned.notified(), self.backend.change());
            let task = self.task();
            if wanted(&task) {
                return task;
            }
            drop(task);
            tokio::select! {
                () = replanned => {}
                () = changed => {}
            }
        }
    }

    /// Takes the youngest connection that is still alive.
    fn take(&self, worker: usize) -> Option<Socket> {
        loop {
            let idle = self.idle.borrow_mut().pop()?;
            let Some(Held { socket, kept }) = idle.take() else { continue };
            if sys::socket::is_hung_up(&socket) {
                kept.lost(worker);
                self.trusted.set(false);
                continue;
            }
            if Instant::now() >= idle.until {
                dismiss(socket);
                continue;
            }
            self.failures.set(0);
            return Some(socket);
        }
    }

    /// Makes a connection and puts it on the shelf.
    async fn fill(&self, plan: Rc<Plan>, worker: &Rc<Worker>) -> Option<Rc<Idle>> {
        let mut turn = None;
        if !self.trusted.get() {
            turn = Some(self.turn.lock().await);
        }
        if self.trusted.get() {
            drop(turn.take()); // the attempt before this one has succeeded
        }
        if let Some(at) = self.not_before.get() {
            sleep_until(at).await;
        }
        let _attempt = worker.ready.attempts.acquire().await.ok()?;
        let Some(mut kept) = Kept::take(&worker.process) else {
            self.put_off(worker);
            return None;
        };
        let (begun, pool) = (Instant::now(), &plan.pool);
        match connect(&self.backend.address, pool.connect.timeout).await {
            Err(error) => {
                self.failed(&plan, worker, error, begun.elapsed());
                None
            }
            Ok(socket) => {
                let since = Instant::now();
                self.trusted.set(true);
                let took = since - begun;
                connected_ahead(pool, &self.backend, since.into_std(), took, &worker.process);
                kept.established(&pool.state);
                let share = worker.with_rng(|rng| 1.0 - AGE_SPREAD * rng.f64());
                let until = since + pool.ready.max_age.mul_f64(share);
                let held = RefCell::new(Some(Held { socket, kept }));
                let idle = Rc::new(Idle { held, taken: Notify::new(), since, until });
                self.idle.borrow_mut().push(idle.clone());
                Some(idle)
            }
        }
    }

    /// It counts like the failed attempt of a session: no client can provoke it, and the next one
    /// would meet it.
    fn failed(&self, plan: &Plan, worker: &Rc<Worker>, error: ConnectError, took: Duration) {
        let (pool, backend) = (&plan.pool, &plan.pool.backends[plan.index]);
        self.trusted.set(false);
        self.put_off(worker);
        self.backend.connect_failed(worker.index, error.reason);
        tracing::debug!(
            pool = %pool.name, backend = %backend.name, reason = error.reason.name(),
            ms = took.as_secs_f64() * 1e3, "connecting ahead failed"
        );
        if !error.ours {
            // Those that are left may lead to the same nowhere, and nobody would know.
            self.clear().into_iter().for_each(dismiss);
            met_ahead(pool, &self.backend, Err(Failure::Connect), &worker.process);
        }
    }

    /// Lets some time pass before the next attempt. Bad news that comes while this is so is no news.
    fn put_off(&self, worker: &Worker) {
        if self.not_before.get().is_some_and(|at| Instant::now() < at) {
            return;
        }
        let failures = self.failures.get();
        self.failures.set(failures.saturating_add(1));
        let wait = worker.with_rng(|rng| BACKOFF.wait(failures, rng));
        self.not_before.set(Some(Instant::now() + wait));
    }

    /// The backend has closed a connection: it is tried with care, and with patience if it does
    /// not seem to want them at all.
    fn closed(&self, worker: &Worker, age: Duration) {
        self.trusted.set(false);
        if age < READY_SETTLED {
            self.put_off(worker);
        } else {
            self.failures.set(0);
        }
    }

    /// Takes everything off the shelf.
    fn clear(&self) -> Vec<Socket> {
        let idle = self.idle.take();
        idle.iter().filter_map(|idle| idle.take()).map(|held| held.socket).collect()
    }

    fn remove(&self, idle: &Rc<Idle>) -> Option<Held> {
        self.idle.borrow_mut().retain(|other| !Rc::ptr_eq(other, idle));
        idle.take()
    }
}

impl Idle {
    fn take(&self) -> Option<Held> {
        let held = self.held.take();
        self.taken.notify_one();
        held
    }

    /// Waits until it is not to be kept any more.
    async fn over(&self) -> Over {
        let mut timer = pin!(sleep_until(self.until));
        let watched = poll_fn(|cx| {
            if let Some(held) = &mut *self.held.borrow_mut() {
                while held.socket.watch(cx) {}
                if held.socket.is_ending() {
                    return Poll::Ready(Over::Closed);
                }
            }
            timer.as_mut().poll(cx).map(|()| Over::Old)
        });
        tokio::select! {
            biased;
            () = self.taken.notified() => Over::Taken,
            over = watched => over,
        }
    }
}

/// A slot of a shelf; counted until it is dropped.
struct Slot {
    shelf: Rc<Shelf>,
    worker: Rc<Worker>,
}

impl Slot {
    fn new(shelf: &Rc<Shelf>, worker: &Rc<Worker>) -> Self {
        shelf.slots.set(shelf.slots.get() + 1);
        Slot { shelf: shelf.clone(), worker: worker.clone() }
    }

    async fn run(self) {
        let Slot { shelf, worker } = &self;
        loop {
            let plan = match shelf.task_that(|task| !matches!(task, Task::Wait)).await {
                Task::Keep(plan) => plan,
                Task::Wait => continue,
                Task::End => return,
            };
            let stopped = || shelf.task_that(|task| !matches!(task, Task::Keep(_)));
            let made = tokio::select! {
                _ = stopped() => None,
                made = shelf.fill(plan, worker) => made,
            };
            let Some(idle) = made else { continue };
            let over = tokio::select! {
                _ = stopped() => Over::Old,
                over = idle.over() => over,
            };
            let Some(Held { socket, kept }) = shelf.remove(&idle) else { continue };
            match over {
                Over::Closed => {
                    kept.lost(worker.index);
                    shelf.closed(worker, idle.since.elapsed());
                }
                Over::Taken | Over::Old => {
                    shelf.failures.set(0);
                    dismiss(socket);
                }
            }
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.shelf.slots.set(self.shelf.slots.get() - 1);
    }
}

/// Closes a connection by FIN. What its backend has said unasked would make that a reset, so it is
/// read to its end.
fn dismiss(socket: Socket) {
    if socket.readable {
        tokio::task::spawn_local(close::by_fin(socket));
    }
}

#[cfg(test)]
mod tests;
