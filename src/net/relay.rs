//! The relay: both directions of a session in one future.
//!
//! A FIN on one side becomes a FIN on the other once everything before it has been written. A
//! reset becomes a reset, once what was received before it has been delivered, or after
//! [`RESET_DELIVERY`]. One timer a session, re-armed when it fires and not for each byte.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use super::half::{Fault, Half, Pumped};
use super::scratch::Scratch;
use super::{Socket, close};
use crate::config::Timeouts;
use crate::limits::{RELAY_BUDGET, RESET_DELIVERY};
use crate::state::Direction;
use crate::sys;
use crate::sys::socket::TcpOptions;

/// One side of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Who connected to us.
    Client,
    /// Whom we connected to.
    Backend,
}

/// Why a relay ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Both sides have sent FIN, this one first.
    Closed(Side),
    /// This side sent RST or could not be reached any more; the other has been reset.
    Reset(Side),
    /// No byte in either direction for [`Timeouts::idle`].
    Idle,
    /// No byte for [`Timeouts::half_closed`] after the first FIN.
    HalfClosed,
    /// Older than [`Timeouts::lifetime`].
    Lifetime,
    /// [`Session::ended_by_order`] said so.
    Ordered,
}

/// The latest time to set the options that find out that a backend has vanished.
const LIVENESS_AFTER: Duration = Duration::from_secs(5);

/// How long after its beginning a session sets the options of its backend's socket: most end before
/// that, and it takes longer for them to be of use. Clients have them from their listener.
fn liveness_after(timeouts: &Timeouts, backend: &Socket) -> Option<Duration> {
    let soonest = [timeouts.keepalive, timeouts.user_timeout].into_iter().flatten().min()?;
    backend.is_tcp().then(|| LIVENESS_AFTER.min(soonest / 4))
}

/// What a relay tells its session, and asks it.
pub trait Session {
    /// Bytes were passed on.
    fn passed(&self, direction: Direction, bytes: u64);
    /// Whether somebody wants the session to end; if not, `waker` is woken when that changes.
    fn ended_by_order(&self, waker: &Waker) -> bool;
}

/// The two sides of a session, and what is between them.
#[derive(Debug)]
pub struct Relay {
    client: Socket,
    backend: Socket,
    /// From the client to the backend.
    up: Half,
    /// From the backend to the client.
    down: Half,
    timeouts: Arc<Timeouts>,
    lifetime_ends: Option<Instant>,
    first_fin: Option<Side>,
    reset: Option<Reset>,
    /// When a byte or a FIN last passed.
    active: Instant,
    /// When the backend's socket gets its options.
    liveness_due: Option<Instant>,
}

/// A reset that waits for what came before it to be delivered.
#[derive(Clone, Copy, Debug)]
struct Reset {
    from: Side,
    give_up: Instant,
}

/// How often the send queue is looked at while a reset waits for it to empty.
const RESET_POLL: Duration = Duration::from_millis(2);

impl Relay {
    /// `first` was read from the client before and goes first. Nothing has passed since `active`.
    /// The session's age is over at `lifetime_ends`.
    pub fn new(
        [client, backend]: [Socket; 2],
        first: Vec<u8>,
        active: Instant,
        timeouts: Arc<Timeouts>,
        lifetime_ends: Option<Instant>,
    ) -> Self {
        Relay {
            up: Half::starting_with(first),
            down: Half::default(),
            lifetime_ends,
            first_fin: None,
            reset: None,
            active,
            liveness_due: liveness_after(&timeouts, &backend).map(|after| active + after),
            timeouts,
            client,
            backend,
        }
    }

    /// Relays until the session ends. Dropping the sockets afterwards closes them as they should
    /// be: by RST where [`End::Reset`] says so, else by FIN.
    pub async fn run(&mut self, scratch: &Scratch, session: &impl Session) -> End {
        let mut timer = pin!(sleep_until(self.deadline().unwrap_or(self.active)));
        poll_fn(|cx| {
            if session.ended_by_order(cx.waker()) {
                return Poll::Ready(End::Ordered);
            }
            if let Poll::Ready(end) = self.poll(cx, scratch, session) {
                return Poll::Ready(end);
            }
            self.poll_timer(cx, timer.as_mut())
        })
        .await
    }

    /// The client's and the backend's.
    pub fn into_sockets(self) -> [Socket; 2] {
        [self.client, self.backend]
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &Scratch,
        session: &impl Session,
    ) -> Poll<End> {
        let mut budget = RELAY_BUDGET;
        loop {
            let news = self.client.watch(cx) | self.backend.watch(cx);
            let up = self.up.pump(&mut self.client, &mut self.backend, scratch, budget);
            let down = self.down.pump(&mut self.backend, &mut self.client, scratch, budget);
            if up.bytes > 0 {
                session.passed(Direction::In, up.bytes);
            }
            if down.bytes > 0 {
                session.passed(Direction::Out, down.bytes);
            }
            let progress = up.bytes + down.bytes > 0 || up.ended || down.ended;
            if progress {
                self.active = Instant::now();
            }
            self.note_faults(&up, &down);
            self.pass_on_ends(&up, &down);
            if let Some(end) = self.end() {
                return Poll::Ready(end);
            }
            let moved = usize::try_from(up.bytes.max(down.bytes)).unwrap_or(usize::MAX);
            budget = budget.saturating_sub(moved);
            if budget == 0 {
                // Others have a turn; this session goes on after them.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if !news && !progress && up.fault.is_none() && down.fault.is_none() {
                return Poll::Pending;
            }
        }
    }

    /// A side that failed is a side that was reset, whether a read, a write or neither saw it.
    fn note_faults(&mut self, up: &Pumped, down: &Pumped) {
        for (fault, source, destination) in
            [(&up.fault, Side::Client, Side::Backend), (&down.fault, Side::Backend, Side::Client)]
        {
            match fault {
                Some(Fault::Source) => self.reset_by(source, true),
                Some(Fault::Destination) => self.reset_by(destination, false),
                None => {}
            }
        }
        // Where reading is paused or over, a reset shows only as an error on the socket. Once both
        // ends have been read a socket counts as broken by itself.
        let over = self.up.ended() && self.down.ended() && self.up.empty() && self.down.empty();
        for side in [Side::Client, Side::Backend] {
            if !over && self.reset.is_none() && self.socket(side).silent_error() {
                self.reset_by(side, false);
            }
        }
    }

    /// `drained`: a read returned the error, so nothing more can be read from that side.
    fn reset_by(&mut self, side: Side, drained: bool) {
        let (from_it, to_it) = match side {
            Side::Client => (&mut self.up, &mut self.down),
            Side::Backend => (&mut self.down, &mut self.up),
        };
        to_it.abandon();
        if drained {
            from_it.source_gone();
        }
        match self.reset {
            None => {
                self.reset = Some(Reset { from: side, give_up: Instant::now() + RESET_DELIVERY });
            }
            // The other side is gone as well: there is nobody left to deliver to.
            Some(reset) if reset.from != side => {
                self.up.abandon();
                self.down.abandon();
            }
            Some(_) => {}
        }
    }

    /// Passes FIN on where everything before it has been written.
    fn pass_on_ends(&mut self, up: &Pumped, down: &Pumped) {
        if up.ended && self.first_fin.is_none() {
            self.first_fin = Some(Side::Client);
        }
        if down.ended && self.first_fin.is_none() {
            self.first_fin = Some(Side::Backend);
        }
        if self.reset.is_some() {
            return;
        }
        let both = self.up.ended() && self.down.ended() && self.up.empty() && self.down.empty();
        for (half, destination) in [(&mut self.up, &self.backend), (&mut self.down, &self.client)] {
            if half.ended() && half.empty() && !half.finished() {
                half.finish();
                // With both ends read, closing the socket sends the FIN.
                // It fails only on a socket that is gone, which the next read or write tells.
                let _gone = if both { Ok(()) } else { sys::socket::shut_write(destination) };
            }
        }
    }

    fn end(&self) -> Option<End> {
        if let Some(reset) = self.reset {
            let (from_it, other) = match reset.from {
                Side::Client => (&self.up, &self.backend),
                Side::Backend => (&self.down, &self.client),
            };
            let passed_on = from_it.ended() && from_it.empty();
            let delivered = from_it.abandoned()
                || passed_on && sys::socket::unacknowledged(other).unwrap_or(0) == 0;
            return (delivered || Instant::now() >= reset.give_up).then(|| {
                close::by_reset(other);
                End::Reset(reset.from)
            });
        }
        let closed = self.up.finished() && self.down.finished();
        closed.then(|| End::Closed(self.first_fin.unwrap_or(Side::Client)))
    }

    fn socket(&self, side: Side) -> &Socket {
        match side {
            Side::Client => &self.client,
            Side::Backend => &self.backend,
        }
    }

    fn quiet_limit(&self) -> Option<Duration> {
        if self.first_fin.is_some() { self.timeouts.half_closed } else { self.timeouts.idle }
    }

    /// When something has to be looked at, if nothing happens before.
    fn deadline(&self) -> Option<Instant> {
        if self.reset.is_some() {
            return Some(Instant::now() + RESET_POLL);
        }
        let quiet = self.quiet_limit().map(|limit| self.active + limit);
        [quiet, self.lifetime_ends, self.liveness_due].into_iter().flatten().min()
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>, mut timer: Pin<&mut Sleep>) -> Poll<End> {
        loop {
            let Some(deadline) = self.deadline() else { return Poll::Pending };
            // The timer is moved forward when it fires, and backward at the first FIN or at a
            // reset: never for a byte.
            if deadline < timer.deadline() || timer.is_elapsed() {
                timer.as_mut().reset(deadline);
            }
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            let now = Instant::now();
            if self.reset.is_some() {
                if let Some(end) = self.end() {
                    return Poll::Ready(end);
                }
            } else if self.liveness_due.is_some_and(|due| now >= due) {
                self.liveness_due = None;
                // It fails only on a socket that is gone, which the next read or write tells.
                let _gone =
                    sys::socket::set_liveness(&self.backend, &TcpOptions::from(&*self.timeouts));
            } else if self.lifetime_ends.is_some_and(|end| now >= end) {
                return Poll::Ready(End::Lifetime);
            } else if self.quiet_limit().is_some_and(|limit| now >= self.active + limit) {
                let half = self.first_fin.is_some();
                return Poll::Ready(if half { End::HalfClosed } else { End::Idle });
            }
        }
    }
}
