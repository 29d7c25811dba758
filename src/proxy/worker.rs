//! A worker: one thread, one single-threaded runtime, its own listening sockets and sessions.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;

use super::accept::{Acceptor, Place};
use super::account::Account;
use super::exchange::{Exchange, Inbox};
use super::flows::{Flows, flows};
use super::preread::Hellos;
use super::ready::Stash;
use super::roll::{Entry, Roll};
use super::session::{self, Accepted};
use crate::config::Protocol;
use crate::limits::SHORTAGES;
use crate::net::scratch::Scratch;
use crate::repeat::Repeats;
use crate::snapshot::{Entrance, ListenSocket, Listener, Pool, Snapshot};
use crate::state::{Phase, Process, Termination};

/// The last part of grace in which the remaining sessions are closed one after the other, so that
/// their clients do not come back all at once: a fifth of it.
const SPREAD_SHARE: u32 = 5;

/// How often sessions are closed while closing is spread.
pub(super) const SPREAD_STEP: Duration = Duration::from_millis(20);

/// Below every timeout that connections usually have.
const BEAT: Duration = Duration::from_millis(200);

/// What sessions get to close after an order, when everything must stop.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// At most one warning in this time that a listener is short of the same thing, from one worker.
const SHORTAGE_WARNING: Duration = Duration::from_secs(5);

/// What the sessions of a worker share.
pub(super) struct Worker {
    /// Which shard of the counters is its own.
    pub index: usize,
    pub process: Arc<Process>,
    pub scratch: Scratch,
    /// Hellos that are not complete yet.
    pub hellos: Hellos,
    /// Connections to backends that nobody uses yet.
    pub ready: Stash,
    /// Its UDP side.
    pub flows: Flows,
    /// Ways to the other workers.
    pub exchange: Exchange,
    rng: RefCell<fastrand::Rng>,
    next_id: Cell<u64>,
    snapshot: RefCell<Arc<Snapshot>>,
    /// Its sessions.
    pub roll: Roll,
    /// [`Worker::beat`] runs.
    beats: Cell<bool>,
    /// Warnings by listener and error number.
    shortages: RefCell<Repeats<(Arc<str>, Option<i32>)>>,
}

/// A worker's thread, from outside.
#[derive(Debug)]
pub struct WorkerThread {
    /// Its runtime, for the metrics.
    pub runtime: Handle,
    /// Ends once the process is draining and its sessions have ended.
    pub thread: JoinHandle<()>,
}

/// A worker that takes over the listeners of its first snapshot.
#[derive(Debug)]
pub struct Starting {
    has_started: mpsc::Receiver<io::Result<Handle>>,
    thread: JoinHandle<()>,
}

impl Starting {
    /// Waits until it serves them.
    ///
    /// # Errors
    ///
    /// It has no epoll instance.
    pub fn finish(self) -> io::Result<WorkerThread> {
        let ended = |_| io::Error::other("a worker thread ended as it started");
        let runtime = self.has_started.recv().map_err(ended)??;
        Ok(WorkerThread { runtime, thread: self.thread })
    }
}

/// Starts worker `index` on the newest snapshot.
///
/// # Errors
///
/// No thread could be had.
pub fn start(
    index: usize,
    process: Arc<Process>,
    hands: (Exchange, Inbox),
    snapshots: watch::Receiver<Arc<Snapshot>>,
) -> io::Result<Starting> {
    let (started, has_started) = mpsc::channel();
    let thread = thread::Builder::new().name(format!("worker-{index}")).spawn(move || {
        let _alarm = Alarm(process.clone());
        // A local runtime belongs to the thread that builds it.
        let runtime = Builder::new_current_thread().enable_all().build_local(Default::default());
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => return drop(started.send(Err(error))),
        };
        runtime.block_on(Worker::run(index, process, hands, snapshots, started));
        // What did not end in time is dropped with the runtime, and accounted for by its guards.
    })?;
    Ok(Starting { has_started, thread })
}

/// Stops the process if what holds it panics, and is to last: its sockets would go on to take
/// connections that nobody serves. Whoever supervises the process starts it again.
struct Alarm(Arc<Process>);

impl Drop for Alarm {
    fn drop(&mut self) {
        if thread::panicking() {
            tracing::error!("a worker ended in a panic; stopping");
            self.0.panicked.store(true, Relaxed);
            self.0.stops.send_modify(|count| *count += 2);
        }
    }
}

async fn lasting(process: Arc<Process>, task: impl Future<Output = ()>) {
    let _alarm = Alarm(process);
    task.await;
}

impl Worker {
    async fn run(
        index: usize,
        process: Arc<Process>,
        (exchange, inbox): (Exchange, Inbox),
        mut snapshots: watch::Receiver<Arc<Snapshot>>,
        started: mpsc::Sender<io::Result<Handle>>,
    ) {
        let snapshot = snapshots.borrow_and_update().clone();
        let mut phases = process.phase.subscribe();
        let (flows, orders) = flows();
        let worker = Rc::new(Worker {
            index,
            scratch: Scratch::default(),
            hellos: Hellos::default(),
            ready: Stash::default(),
            flows,
            exchange,
            rng: RefCell::new(fastrand::Rng::new()),
            next_id: Cell::new(first_id() + index as u64),
            snapshot: RefCell::new(snapshot),
            roll: Roll::default(),
            beats: Cell::new(false),
            shortages: RefCell::new(Repeats::new(SHORTAGE_WARNING, SHORTAGES)),
            process,
        });
        if let Err(error) = orders.serve(&worker) {
            // If nobody hears of it, the process is about to stop.
            return drop(started.send(Err(error)));
        }
        worker.spawn_lasting(worker.clone().close_oldest_hellos());
        worker.spawn_lasting(worker.clone().answer_queries());
        worker.spawn_lasting(worker.clone().close_on_down());
        let handed = worker.spawn_lasting(inbox.run(worker.clone()));
        let mut acceptors: Vec<Rc<Acceptor>> = Vec::new();
        worker.reconcile(&mut acceptors).await;
        // If nobody hears of it, the process is about to stop.
        let _unheard = started.send(Ok(Handle::current()));
        loop {
            let phase = *phases.borrow_and_update();
            if let Phase::Draining { .. } | Phase::Stopping = phase {
                break;
            }
            tokio::select! {
                changed = snapshots.changed() => {
                    if changed.is_err() {
                        break; // control is gone, which ends the process
                    }
                    *worker.snapshot.borrow_mut() = snapshots.borrow_and_update().clone();
                    worker.reconcile(&mut acceptors).await;
                }
                _ = phases.changed() => {}
            }
        }
        worker.flows.close().await;
        for acceptor in &acceptors {
            acceptor.retire();
        }
        for acceptor in acceptors {
            acceptor.finished().await;
        }
        if snapshots.has_changed().is_ok() {
            // An error is a panic in the task, which has been reported as such.
            let _panicked = handed.await;
        }
        tokio::join!(worker.close_ready(LAST_WORDS), worker.drain(phases));
    }

    /// Makes the listening sockets and what is kept ready those of the snapshot. Only when the
    /// sockets that are not in it any more are closed has the snapshot been taken over.
    async fn reconcile(self: &Rc<Self>, acceptors: &mut Vec<Rc<Acceptor>>) {
        let snapshot = self.snapshot.borrow().clone();
        self.keep_ready(&snapshot);
        let mut before = std::mem::take(acceptors);
        let (udp, tcp): (Vec<_>, Vec<_>) = snapshot
            .listeners
            .iter()
            .partition(|entrance| entrance.listener.protocol == Protocol::Udp);
        for entrance in tcp {
            for socket in &entrance.sockets {
                let known = before.iter().position(|a| Arc::ptr_eq(&a.socket, socket));
                if let Some(known) = known {
                    let acceptor = before.swap_remove(known);
                    acceptor.replace(&entrance.listener);
                    acceptors.push(acceptor);
                    continue;
                }
                match Acceptor::start(self, socket, &entrance.listener) {
                    Ok(acceptor) => acceptors.push(acceptor),
                    Err(error) => tracing::error!(
                        listener = %entrance.listener.name, address = %socket.local, %error,
                        "cannot accept on a bound socket"
                    ),
                }
            }
        }
        for acceptor in &before {
            acceptor.retire();
        }
        for acceptor in before {
            acceptor.finished().await;
        }
        let with = |socket: &Arc<ListenSocket>, entrance: &Entrance| {
            (socket.clone(), entrance.listener.clone())
        };
        let wanted = udp
            .into_iter()
            .flat_map(|entrance| entrance.sockets.iter().map(|socket| with(socket, entrance)));
        self.flows.set(wanted.collect()).await;
        let state = self.process.workers.shard(self.index);
        state.generation.store(snapshot.generation, Relaxed);
        // Who waits for a place here has another pool to look at.
        snapshot.pools.iter().for_each(|pool| pool.state.queue().nudge());
    }

    /// Runs what a session cannot do without as a task of its own.
    pub fn spawn_lasting(
        &self,
        task: impl Future<Output = ()> + 'static,
    ) -> tokio::task::JoinHandle<()> {
        tokio::task::spawn_local(lasting(self.process.clone(), task))
    }

    /// Runs one session as a task of its own.
    pub fn start_session(
        self: &Rc<Self>,
        accepted: Accepted,
        listener: Arc<Listener>,
        account: Account,
        place: Place,
    ) {
        if !self.beats.replace(true) {
            self.spawn_lasting(self.clone().beat());
        }
        let enrolled = Enrolled::new(self, account.entry());
        let held = (enrolled, place);
        tokio::task::spawn_local(session::serve(accepted, listener, account, held));
    }

    /// Keeps a timer ahead of all others while connections come. A timer that is armed to fire before
    /// the others makes tokio write to its own event queue, to wake a thread that is awake.
    async fn beat(self: Rc<Self>) {
        loop {
            let before = self.next_id.get();
            tokio::time::sleep(BEAT).await;
            if self.next_id.get() == before {
                self.beats.set(false);
                return;
            }
        }
    }

    /// Closes the oldest unfinished hello here when another worker asks for it.
    async fn close_oldest_hellos(self: Rc<Self>) {
        loop {
            self.process.workers.shard(self.index).close_oldest.notified().await;
            self.hellos.keep_bound(&self);
        }
    }

    /// Lets sessions finish, closes what is left towards the end of grace, and at once when the
    /// process is stopping.
    async fn drain(&self, mut phases: watch::Receiver<Phase>) {
        loop {
            let phase = *phases.borrow_and_update();
            if self.roll.len() == 0 {
                return;
            }
            let Phase::Draining { since, until } = phase else { break };
            let wait = self.close_share(since, until);
            tokio::select! {
                () = self.roll.emptied() => {}
                _ = phases.changed() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
        self.roll.order_end(usize::MAX, Termination::Shutdown);
        // Whoever has not ended by then is dropped, and accounted for all the same.
        let _late = tokio::time::timeout(LAST_WORDS, self.roll.emptied()).await;
    }

    /// Closes as many sessions as the time left asks for; returns when to come again.
    fn close_share(&self, since: Instant, until: Instant) -> Duration {
        let now = Instant::now();
        let spread = until.duration_since(since) / SPREAD_SHARE;
        let left = until.saturating_duration_since(now);
        if left > spread {
            return left - spread;
        }
        let steps = left.as_millis() / SPREAD_STEP.as_millis() + 1;
        let share = self.roll.kept().div_ceil(usize::try_from(steps).unwrap_or(usize::MAX));
        self.roll.order_end(share, Termination::Shutdown);
        SPREAD_STEP
    }

    /// The pool of this name in the configuration in force, unless that is still this generation.
    pub fn pool_since(&self, generation: &mut u64, name: &str) -> Option<Arc<Pool>> {
        let snapshot = self.snapshot.borrow();
        let before = std::mem::replace(generation, snapshot.generation);
        if before == snapshot.generation { None } else { snapshot.pool(name).cloned() }
    }

    /// The pool of this name in the configuration in force.
    pub fn pool(&self, name: &str) -> Option<Arc<Pool>> {
        self.snapshot.borrow().pool(name).cloned()
    }

    /// Whether connections are recorded in the access log.
    pub fn logs_access(&self) -> bool {
        self.snapshot.borrow().config.access_log.is_some()
    }

    /// An id for a connection, unique in the process and over restarts: workers count in turns.
    pub fn next_id(&self) -> u64 {
        let id = self.next_id.get();
        self.next_id.set(id.wrapping_add(self.process.registry.workers() as u64));
        id
    }

    /// Lends the random numbers of this worker.
    pub fn with_rng<R>(&self, use_it: impl FnOnce(&mut fastrand::Rng) -> R) -> R {
        use_it(&mut self.rng.borrow_mut())
    }

    /// Says that a listener is short of something, and what happens meanwhile, but not all the time.
    pub fn warn_of_shortage(&self, listener: &Arc<str>, error: &io::Error, meanwhile: &str) {
        let shortage = (listener.clone(), error.raw_os_error());
        let admitted = self.shortages.borrow_mut().admit(shortage, Instant::now());
        if let Some(suppressed) = admitted {
            tracing::warn!(listener = &**listener, %error, suppressed, "{meanwhile}");
        }
    }
}

/// Seconds since 1970 in the upper half; connections count in the lower one.
fn first_id() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |d| d.as_secs()) << 32
}

/// A session's place on its worker's roll, given up when dropped.
pub(super) struct Enrolled {
    worker: Rc<Worker>,
    entry: Rc<Entry>,
}

impl Enrolled {
    pub fn new(worker: &Rc<Worker>, entry: &Rc<Entry>) -> Self {
        worker.roll.enter(entry.clone());
        worker.show_active();
        Enrolled { worker: worker.clone(), entry: entry.clone() }
    }
}

impl Drop for Enrolled {
    fn drop(&mut self) {
        self.worker.roll.leave(self.entry.id);
        self.worker.show_active();
    }
}

impl Worker {
    fn show_active(&self) {
        let state = self.process.workers.shard(self.index);
        state.active.store(u32::try_from(self.roll.len()).unwrap_or(u32::MAX), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_what_is_to_last_stops_the_process() {
        let after = |task: fn()| {
            let (process, _inbox) = Process::new(1);
            let runtime = Builder::new_current_thread().build().unwrap();
            let lasting = lasting(process.clone(), async move { task() });
            let ended = runtime.block_on(runtime.spawn(lasting)).is_ok();
            (ended, *process.stops.borrow(), process.panicked.load(Relaxed))
        };
        assert_eq!(after(|| ()), (true, 0, false));
        assert_eq!(after(|| panic!("on purpose")), (false, 2, true));
    }
}
