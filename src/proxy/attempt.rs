//! Picking a backend and connecting to it. Attempts go to different backends: the next one starts
//! when one has failed, or beside one that takes long (`connect.hedge_after`). The first to be
//! established wins; nothing is sent before that, so nothing is ever sent twice.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use super::account::Account;
use super::order::Order;
use super::place::Place;
use super::worker::Worker;
use crate::balance::key::Tuple;
use crate::health::backoff::Backoff;
use crate::health::outlier::Failure;
use crate::limits::{BACKOFF_BASE, BACKOFF_CAP};
use crate::net::Socket;
use crate::net::connect::{Connecting, TIMED_OUT};
use crate::snapshot::{Pick, Pool, Tried};
use crate::state::{AttemptOutcome, ConnectError, ConnectFailure, Lease, Termination};

/// When all backends have been tried.
const BACKOFF: Backoff = Backoff { base: BACKOFF_BASE, cap: BACKOFF_CAP };

/// An established connection to a backend.
pub(super) struct Connected {
    pub socket: Socket,
    pub place: Place,
    /// When the session got it.
    pub since: Instant,
}

/// Where a connection is to go.
pub(super) struct Way<'a> {
    pub pool: &'a Arc<Pool>,
    pub connection: &'a Tuple<'a>,
}

/// How far a connection has come with its attempts.
#[derive(Debug)]
pub(super) struct Course {
    begun: Instant,
    /// The pool, where that has been replaced while the connection waited.
    pool: Option<Arc<Pool>>,
    /// When all attempts have to be over; `None` before the first one.
    total_ends: Option<Instant>,
    /// Backends that are not to be tried again.
    tried: Tried,
    /// Attempts made so far.
    made: usize,
}

impl Course {
    /// Of one that has made none.
    pub fn new() -> Self {
        let (begun, tried) = (Instant::now(), Tried::default());
        Course { begun, pool: None, total_ends: None, tried, made: 0 }
    }

    /// When all attempts have to be over; `None` before the first one.
    pub fn total_ends(&self) -> Option<Instant> {
        self.total_ends
    }
}

/// Connects to a backend of the pool, in what is left of `course`: if that has led to a backend
/// before, only those are left that it has not been to.
///
/// # Errors
///
/// [`Termination::NoBackend`] if nothing could be picked at all, [`Termination::Overload`] if the
/// pool has as many connections as it may, [`Termination::ConnectFailed`] if every attempt failed;
/// [`Termination::ClientReset`] if the client has left meanwhile; and what `order` says.
pub(super) async fn connect_any(
    client: &mut Socket,
    way: &Way<'_>,
    course: &mut Course,
    account: &mut Account,
    order: &Order,
) -> Result<Connected, Termination> {
    let mut race = Race::new(way, course, account);
    let result = {
        let mut run = pin!(race.run());
        poll_fn(|cx| {
            if let Some(reason) = order.poll(cx.waker()) {
                return Poll::Ready(Err(reason));
            }
            if client.poll_gone(cx) {
                return Poll::Ready(Err(Termination::ClientReset));
            }
            run.as_mut().poll(cx)
        })
        .await
    };
    race.abandon();
    result
}

/// The attempts of one connection.
struct Race<'a> {
    pool: Arc<Pool>,
    connection: &'a Tuple<'a>,
    account: &'a mut Account,
    course: &'a mut Course,
    /// It has been connected before.
    resumed: bool,
    /// A failure was our own: it would be met again.
    ours: bool,
    /// How often all backends have been tried.
    rounds: u32,
    /// Attempts under way, the oldest first.
    pending: Vec<Attempt>,
    /// When the next attempt starts beside them.
    hedge_at: Option<Instant>,
}

/// An attempt that is under way.
struct Attempt {
    index: usize,
    place: Place,
    connecting: Connecting,
    /// It had been established before.
    ready: bool,
    begun: Instant,
    ends: Instant,
}

/// What happens to attempts.
enum Event {
    /// The attempt at this position has been answered.
    Answered(usize, Result<(), ConnectError>),
    /// It is time to look what is due.
    Due,
}

impl<'a> Race<'a> {
    fn new(way: &Way<'a>, course: &'a mut Course, account: &'a mut Account) -> Self {
        let &Way { pool, connection } = way;
        Race {
            pool: course.pool.as_ref().unwrap_or(pool).clone(),
            connection,
            account,
            resumed: course.made > 0,
            course,
            ours: false,
            rounds: 0,
            pending: Vec::new(),
            hedge_at: None,
        }
    }

    /// Makes the first attempt; says when all have to be over.
    async fn begin(&mut self) -> Result<Instant, Termination> {
        if let Some(percent) = self.pool.connect.retry_budget {
            self.pool.state.earn_retries(self.course.begun.into_std(), percent);
        }
        let first = self.place_in_turn().await;
        let total_ends = Instant::now() + self.pool.connect.total_timeout;
        self.course.total_ends = Some(total_ends);
        match first {
            Pick::Backend(index, lease) => self.start(index, lease)?,
            Pick::PoolFull => return Err(Termination::Overload),
            Pick::BackendsFull | Pick::Nothing => {
                self.pool.state.no_backend(self.worker().index);
                return Err(Termination::NoBackend);
            }
        }
        Ok(total_ends)
    }

    async fn run(&mut self) -> Result<Connected, Termination> {
        let total_ends = match self.course.total_ends {
            Some(total_ends) => total_ends,
            None => self.begin().await?,
        };
        let mut timer = pin!(sleep_until(self.due(total_ends)));
        loop {
            if self.pending.is_empty() {
                self.retry(total_ends).await?;
                continue; // that one may have failed at once
            }
            let due = self.due(total_ends);
            match self.event(timer.as_mut(), due).await {
                Event::Answered(at, Ok(())) => return Ok(self.won(at)),
                Event::Answered(at, Err(error)) => {
                    let attempt = self.pending.remove(at);
                    self.failed(attempt, error)?;
                }
                Event::Due => self.look_at_clock(total_ends)?,
            }
        }
    }

    /// Waits for an answer, or until `due`.
    async fn event(&mut self, mut timer: Pin<&mut Sleep>, due: Instant) -> Event {
        if timer.deadline() != due {
            timer.as_mut().reset(due);
        }
        poll_fn(|cx| {
            if let Poll::Ready((at, answer)) = self.poll_answers(cx) {
                return Poll::Ready(Event::Answered(at, answer));
            }
            timer.as_mut().poll(cx).map(|()| Event::Due)
        })
        .await
    }

    fn poll_answers(&mut self, cx: &mut Context<'_>) -> Poll<(usize, Result<(), ConnectError>)> {
        for (at, attempt) in self.pending.iter_mut().enumerate() {
            if let Poll::Ready(answer) = attempt.connecting.poll(cx) {
                return Poll::Ready((at, answer));
            }
        }
        Poll::Pending
    }

    /// When something is due, if nothing is answered before.
    fn due(&self, total_ends: Instant) -> Instant {
        let ends = self.pending.iter().map(|attempt| attempt.ends);
        ends.chain(self.hedge_at).fold(total_ends, Instant::min)
    }

    fn look_at_clock(&mut self, total_ends: Instant) -> Result<(), Termination> {
        let now = Instant::now();
        while let Some(at) = self.pending.iter().position(|attempt| attempt.ends <= now) {
            let attempt = self.pending.remove(at);
            self.failed(attempt, TIMED_OUT)?;
        }
        if now >= total_ends {
            for attempt in std::mem::take(&mut self.pending) {
                self.given_up(attempt);
            }
            return Err(Termination::ConnectFailed);
        }
        if self.hedge_at.is_some_and(|at| at <= now) {
            self.hedge_at = None;
            self.hedge()?;
        }
        Ok(())
    }

    /// Starts another attempt, now that none is under way; waits if every backend has been tried.
    async fn retry(&mut self, total_ends: Instant) -> Result<(), Termination> {
        let failed = Err(Termination::ConnectFailed);
        if self.course.made >= self.pool.connect.attempts || Instant::now() >= total_ends {
            return failed;
        }
        if !self.spend() {
            return failed;
        }
        loop {
            match self.place() {
                Pick::Backend(index, lease) => {
                    self.pool.state.retried(self.worker().index);
                    return self.start(index, lease);
                }
                _ if self.resumed || self.course.tried.count() == 0 || self.ours => return failed,
                _ => {}
            }
            let wait = self.worker().with_rng(|rng| BACKOFF.wait(self.rounds, rng));
            tokio::time::sleep_until(total_ends.min(Instant::now() + wait)).await;
            if Instant::now() >= total_ends {
                return failed;
            }
            self.course.tried.clear();
            self.rounds += 1;
        }
    }

    /// Starts another attempt beside those under way, where there is a backend for it.
    fn hedge(&mut self) -> Result<(), Termination> {
        if self.course.made >= self.pool.connect.attempts {
            return Ok(());
        }
        let Pick::Backend(index, lease) = self.place() else { return Ok(()) };
        if !self.spend() {
            return Ok(());
        }
        self.pool.state.hedged(self.worker().index);
        self.start(index, lease)
    }

    fn spend(&self) -> bool {
        let state = &self.pool.state;
        let unbounded = self.pool.connect.retry_budget.is_none();
        let allowed = unbounded || state.spend_retry(Instant::now().into_std());
        if !allowed {
            state.budget_exhausted(self.worker().index);
        }
        allowed
    }

    fn start(&mut self, index: usize, lease: Lease) -> Result<(), Termination> {
        self.course.made += 1;
        self.course.tried.add(index);
        let begun = Instant::now();
        let place = Place::new(lease, &self.pool);
        let kept = self.worker().take_ready(&self.pool, index);
        let ready = kept.is_some();
        let connecting = match kept {
            Some(socket) => Ok(Connecting::established(socket)),
            None => Connecting::start(&place.lease.backend().address),
        };
        match connecting {
            Ok(connecting) => {
                let ends = begun + self.pool.connect.timeout;
                self.pending.push(Attempt { index, place, connecting, ready, begun, ends });
                self.hedge_at = self.hedge_after().map(|after| begun + after);
                Ok(())
            }
            Err(error) => self.note_failure(index, place, begun, error),
        }
    }

    fn hedge_after(&self) -> Option<Duration> {
        self.pool.connect.hedge_after.delay(self.pool.state.connect_times())
    }

    fn failed(&mut self, attempt: Attempt, error: ConnectError) -> Result<(), Termination> {
        if !self.pending.is_empty() {
            // What is pending is as slow as before.
            self.hedge_at = Some(Instant::now());
        }
        self.note_failure(attempt.index, attempt.place, attempt.begun, error)
    }

    fn note_failure(
        &mut self,
        index: usize,
        place: Place,
        begun: Instant,
        error: ConnectError,
    ) -> Result<(), Termination> {
        let (took, backend) = (begun.elapsed(), &self.pool.backends[index]);
        self.account.attempted(&backend.name, AttemptOutcome::Failed(error.reason), took);
        backend.state.connect_failed(self.worker().index, error.reason);
        tracing::debug!(
            pool = %self.pool.name, backend = %backend.name, reason = error.reason.name(),
            ms = took.as_secs_f64() * 1e3, "connect failed"
        );
        self.ours |= error.ours;
        if !error.ours && !error.busy {
            let outlier = self.pool.outlier.as_ref();
            place.failed(Failure::Connect, outlier, &self.worker().process);
        }
        let last = hopeless(error) && self.pending.is_empty();
        if last { Err(Termination::ConnectFailed) } else { Ok(()) }
    }

    fn won(&mut self, at: usize) -> Connected {
        let Attempt { index, place, connecting, ready, begun, .. } = self.pending.remove(at);
        let now = Instant::now();
        // In the record the one that was established is the last.
        for attempt in std::mem::take(&mut self.pending) {
            self.overtaken(attempt, now);
        }
        let (worker, took) = (self.worker().clone(), now - begun);
        let backend = &self.pool.backends[index];
        backend.state.connected(worker.index);
        self.pool.state.connect_seconds.record(worker.index, took);
        let (outlier, process) = (self.pool.outlier.as_ref(), &worker.process);
        if ready {
            self.account.attempted(&backend.name, AttemptOutcome::Ready, took);
            place.got_ready(outlier);
        } else {
            self.account.attempted(&backend.name, AttemptOutcome::Connected, took);
            place.connected(now.into_std(), took, outlier, process);
        }
        self.account.connected(now - self.course.begun);
        Connected { socket: connecting.into_socket(), place, since: now }
    }

    /// One that lost although it had its time must not look good for having been given up: it
    /// counts as a failure, and as load until it would have timed out.
    fn overtaken(&mut self, attempt: Attempt, now: Instant) {
        let Attempt { index, place, begun, ends, .. } = attempt;
        let (took, backend) = (now - begun, &self.pool.backends[index]);
        self.account.attempted(&backend.name, AttemptOutcome::Overtaken, took);
        if self.hedge_after().is_some_and(|after| took >= after) {
            place.failed(Failure::Late, self.pool.outlier.as_ref(), &self.worker().process);
            tokio::task::spawn_local(async move {
                sleep_until(ends).await;
                drop(place);
            });
        }
    }

    /// The time for all attempts is over.
    fn given_up(&mut self, attempt: Attempt) {
        let Attempt { index, place, begun, .. } = attempt;
        let backend = &self.pool.backends[index];
        let failure = ConnectFailure::Timeout;
        self.account.attempted(&backend.name, AttemptOutcome::Failed(failure), begun.elapsed());
        backend.state.connect_failed(self.worker().index, failure);
        place.failed(Failure::Late, self.pool.outlier.as_ref(), &self.worker().process);
    }

    /// The connection ends while these are under way.
    fn abandon(mut self) {
        for attempt in std::mem::take(&mut self.pending) {
            let backend = &self.pool.backends[attempt.index].name;
            let took = attempt.begun.elapsed();
            self.account.attempted(backend, AttemptOutcome::Abandoned, took);
        }
    }

    fn worker(&self) -> &Rc<Worker> {
        self.account.worker()
    }

    fn place(&self) -> Pick {
        let hash = || self.pool.spec.key.hash(self.connection, self.pool.hash_seed);
        self.worker().with_rng(|rng| self.pool.pick(&self.course.tried, hash, rng))
    }

    /// A place for the first attempt; waited for if all backends are full and the pool has a
    /// queue. Whoever finds others waiting waits behind them; whose turn it is looks at the pool as
    /// it is by then.
    async fn place_in_turn(&mut self) -> Pick {
        let (queue, queueing) = (self.pool.state.queue().clone(), self.pool.queue);
        if queueing.max == 0 || queue.waiting() == 0 {
            let picked = self.place();
            if queueing.max == 0 || !matches!(picked, Pick::BackendsFull) {
                return picked;
            }
        }
        let Some(turn) = queue.join(queueing.max) else { return Pick::BackendsFull };
        // It was routed by this configuration or one before.
        let mut generation = 0;
        let wait = async {
            loop {
                if turn.is_first() {
                    self.follow_pool(&mut generation);
                    match self.place() {
                        Pick::BackendsFull => {}
                        picked => return picked,
                    }
                }
                turn.news().await;
            }
        };
        tokio::time::timeout(queueing.timeout, wait).await.unwrap_or(Pick::BackendsFull)
    }

    /// Goes on with the newest configuration of its pool, as long as nothing has been tried.
    fn follow_pool(&mut self, generation: &mut u64) {
        if let Some(newest) = self.worker().pool_since(generation, &self.pool.name) {
            self.pool = newest.clone();
            self.course.pool = Some(newest);
        }
    }
}

/// A shortage of our own descriptors or memory meets every backend alike: trying the others only
/// makes it worse. Local ports are short towards one address only, so another may do.
fn hopeless(error: ConnectError) -> bool {
    error.ours && error.reason != ConnectFailure::LocalPorts
}
