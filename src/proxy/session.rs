//! One connection from accepted socket to termination, as a straight line:
//!
//! ```text
//! accepted → [preread] → route → pick and connect → relay → closed
//! ```

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use super::account::Account;
use super::attempt::{Connected, connect_any};
use super::order::Order;
use crate::address::Address;
use crate::balance::key::Tuple;
use crate::net::relay::{self, End, Side, relay};
use crate::net::{Socket, close};
use crate::snapshot::Listener;
use crate::state::{Direction, Termination};
use crate::sys::socket::TcpOptions;

/// A connection that was just accepted.
pub(super) struct Accepted {
    pub fd: OwnedFd,
    /// The client; `None` on a unix listener.
    pub client: Option<SocketAddr>,
    /// The address it connected to.
    pub local: Address,
}

/// Serves the connection to its end and says why it ended.
pub(super) async fn serve(
    accepted: Accepted,
    listener: Arc<Listener>,
    account: &mut Account,
    order: &Order,
) -> Termination {
    let tuple = tuple(&accepted);
    let tcp = accepted.local.ip().is_some();
    let Ok(mut client) = Socket::new(accepted.fd, tcp) else { return Termination::Error };

    // Preread goes here: what it reads moves into the relay as `first`.
    let first = Vec::new();

    let pool = listener.pool.clone();
    account.routed(&pool.name);

    let options = TcpOptions::from(&listener.timeouts);
    let timeouts = relay::Timeouts {
        idle: listener.timeouts.idle,
        half_closed: listener.timeouts.half_closed,
        lifetime_ends: listener.timeouts.lifetime.map(|age| (account.started() + age).into()),
    };
    // From here on the session holds its backend and nothing of the configuration.
    drop(listener);
    let connected = tokio::select! {
        biased;
        reason = order.received() => Err(reason),
        result = connect_any(&pool, &tuple, &options, account) => result,
    };
    drop(pool);
    let mut connected = match connected {
        Ok(connected) => connected,
        Err(termination) => {
            account.ends(termination);
            close::by_fin(client).await;
            return termination;
        }
    };
    let ended = carry(&mut client, &mut connected, first, &timeouts, account, order).await;
    account.ends(ended.termination);
    if !ended.told {
        tokio::join!(close::by_fin(client), close::by_fin(connected.socket));
    }
    ended.termination
}

/// Relays, and says how the relay ended and who still has to be told.
async fn carry(
    client: &mut Socket,
    connected: &mut Connected,
    first: Vec<u8>,
    timeouts: &relay::Timeouts,
    account: &mut Account,
    order: &Order,
) -> Ended {
    let Connected { socket: backend, lease, pool } = connected;
    let session =
        Link { account, lease, order, connected: Instant::now(), first_byte: Cell::new(None) };
    let worker = session.account.worker().clone();
    let end = relay(client, backend, first, timeouts, &worker.scratch, &session).await;
    let first_byte = session.first_byte.get();
    if let Some(took) = first_byte {
        pool.first_byte_seconds.record(worker.index, took);
    }
    account.first_byte(first_byte);
    match end {
        End::Closed(Side::Client) => Ended::told(Termination::ClientClosed),
        End::Closed(Side::Backend) => Ended::told(Termination::BackendClosed),
        End::Reset(Side::Client) => Ended::told(Termination::ClientReset),
        End::Reset(Side::Backend) => Ended::told(Termination::BackendReset),
        End::Idle => Ended::to_tell(Termination::IdleTimeout),
        End::HalfClosed => Ended::to_tell(Termination::HalfClosedTimeout),
        End::Lifetime => Ended::to_tell(Termination::Lifetime),
        End::Ordered => Ended::to_tell(order.given().unwrap_or(Termination::Error)),
    }
}

struct Ended {
    termination: Termination,
    /// The peers know, since they ended it.
    told: bool,
}

impl Ended {
    fn told(termination: Termination) -> Self {
        Ended { termination, told: true }
    }

    fn to_tell(termination: Termination) -> Self {
        Ended { termination, told: false }
    }
}

/// The addresses that hash policies look at. A client on a unix socket has none.
fn tuple(accepted: &Accepted) -> Tuple {
    let none = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
    Tuple {
        protocol: 6,
        client: accepted.client.unwrap_or(none),
        local: accepted.local.ip().unwrap_or(none),
    }
}

/// What the relay reports to.
struct Link<'a> {
    account: &'a Account,
    lease: &'a crate::state::Lease,
    order: &'a Order,
    connected: Instant,
    first_byte: Cell<Option<Duration>>,
}

impl relay::Session for Link<'_> {
    fn passed(&self, direction: Direction, bytes: u64) {
        if direction == Direction::Out && self.first_byte.get().is_none() {
            self.first_byte.set(Some(self.connected.elapsed()));
        }
        let worker = self.account.worker().index;
        self.account.passed(direction, bytes);
        self.lease.backend().passed(worker, direction, bytes);
    }

    fn ended_by_order(&self, waker: &Waker) -> bool {
        self.order.poll(waker).is_some()
    }
}
