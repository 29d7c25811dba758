//! One connection from accepted socket to termination, as a straight line:
//!
//! ```text
//! accepted → preread → route → pick and connect → relay → closed
//! ```

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use super::account::Account;
use super::attempt::{Connected, Course, Way, connect_any};
use super::place::Place;
use super::preread::{Read, preread};
use super::replay::offer_around;
use super::roll::Entry;
use crate::address::Address;
use crate::balance::key::Tuple;
use crate::config::Timeouts;
use crate::health::outlier::Failure;
use crate::net::relay::{self, End, Relay, Side};
use crate::net::{Socket, close};
use crate::route::Request;
use crate::snapshot::{Lead, Listener, Pool, split_pool};
use crate::state::{Direction, Stage, Termination};
use crate::wire::alert::UNRECOGNIZED_NAME;
use crate::wire::{Alpn, ClientHello};

/// A connection that was just accepted.
#[derive(Debug)]
pub(super) struct Accepted {
    pub fd: OwnedFd,
    /// The client; `None` on a unix listener.
    pub client: Option<SocketAddr>,
    /// The address it connected to.
    pub local: Address,
}

/// Serves the connection to its end, then closes its account, lets go of `held`, and closes what is
/// still open: in this order, so that whoever sees the end finds it in the counters.
///
/// Each stage is boxed, the first one before there is a task and the second one by the first: a
/// session waits in one of them, and should carry neither the room for the others along nor what
/// they were given.
pub(super) fn serve<T>(
    accepted: Accepted,
    listener: Arc<Listener>,
    account: Account,
    held: T,
) -> impl Future<Output = ()> {
    let arrive = Box::pin(arrive(accepted, listener, account));
    async move {
        let (account, ended) = match arrive.await {
            Ok(carried) => carried.await,
            Err(turned_away) => *turned_away,
        };
        account.ends(ended.termination);
        drop(account);
        drop(held);
        drop(ended);
    }
}

/// A connection that is over.
struct Ended {
    termination: Termination,
    /// What is still open of client and backend. Its peers know of the end, or are told by the close.
    _open: [Option<Socket>; 2],
}

impl Ended {
    fn new(termination: Termination, client: Option<Socket>) -> Self {
        Ended { termination, _open: [client, None] }
    }
}

/// A connection with its backend, which holds nothing of the configuration.
struct Arrived {
    client: Socket,
    connected: Connected,
    /// What was read of the client, for the backend.
    first: Vec<u8>,
    timeouts: Arc<Timeouts>,
}

/// The way to a backend, which gives the rest of the session. A client that is turned away on it
/// has been told.
async fn arrive(
    accepted: Accepted,
    listener: Arc<Listener>,
    mut account: Account,
) -> Result<Pin<Box<impl Future<Output = (Account, Ended)>>>, Box<(Account, Ended)>> {
    let entry = account.entry().clone();
    match find_backend(accepted, listener, &mut account, &entry).await {
        Ok(arrived) => Ok(Box::pin(carry(arrived, account))),
        Err(ended) => Err(Box::new((account, ended))),
    }
}

/// Preread, route, pick and connect.
async fn find_backend(
    accepted: Accepted,
    listener: Arc<Listener>,
    account: &mut Account,
    entry: &Rc<Entry>,
) -> Result<Arrived, Ended> {
    let tcp = accepted.local.ip().is_some();
    let Ok(mut client) = Socket::new(accepted.fd, tcp) else {
        return Err(Ended::new(Termination::Error, None));
    };
    let from = accepted.client;
    let read = match read_hello(&mut client, &listener, from, account, entry).await {
        Ok(read) => read,
        Err(termination) => return Err(Box::pin(turn_away(client, termination, account)).await),
    };
    let Read { mut bytes, hello, alone } = read;
    let peers = (from, accepted.local);
    let connection = connection(&peers, hello.as_ref());
    let source = from.map(|client| client.ip());
    let pool = match route(&listener, &connection, hello.as_ref(), source) {
        Ok(pool) => pool,
        Err(refusal) => {
            let speaks_tls = hello.is_some();
            // What lingers holds no buffer.
            drop((bytes, hello));
            return Err(Box::pin(refuse(client, refusal, speaks_tls, account)).await);
        }
    };
    account.routed(&pool.state);

    let timeouts = listener.timeouts.clone();
    // While it connects the session holds its pool, later its backend: never the configuration.
    drop(listener);
    let way = Way { pool: &pool, connection: &connection };
    let reach = reach(&mut client, &mut bytes, alone, &way, account, &timeouts);
    match Box::pin(reach).await {
        Ok(connected) => Ok(Arrived { client, connected, first: bytes, timeouts }),
        Err(termination) => {
            drop((bytes, pool));
            Err(Box::pin(turn_away(client, termination, account)).await)
        }
    }
}

/// Connects to a backend; to one that takes the hello, if that is `alone` and may be sent again.
/// What is left of `bytes` then is to be sent yet.
async fn reach(
    client: &mut Socket,
    bytes: &mut Vec<u8>,
    alone: bool,
    way: &Way<'_>,
    account: &mut Account,
    timeouts: &Timeouts,
) -> Result<Connected, Termination> {
    let (mut course, entry) = (Course::new(), account.entry().clone());
    let mut connected = connect_any(client, way, &mut course, account, &entry.order).await?;
    entry.comes_to(Stage::Relaying(connected.place.lease.backend().clone()));
    if alone && way.pool.replay_hello {
        let course = &mut course;
        let around = offer_around(client, &mut connected, bytes, way, course, account, timeouts);
        Box::pin(around).await?;
    }
    Ok(connected)
}

/// Reads the TLS hello where something needs it.
async fn read_hello(
    client: &mut Socket,
    listener: &Listener,
    from: Option<SocketAddr>,
    account: &mut Account,
    entry: &Rc<Entry>,
) -> Result<Read, Termination> {
    if !listener.reads_hello {
        return Ok(Read::default());
    }
    let worker = account.worker().clone();
    let begun = account.started();
    let read = preread(client, listener, from, begun.into(), &worker, entry).await;
    account.preread(read.as_ref().ok().and_then(|read| read.hello.as_ref()));
    read
}

/// Where the first matching route leads.
pub(super) fn route(
    listener: &Listener,
    connection: &Tuple<'_>,
    hello: Option<&ClientHello>,
    source: Option<IpAddr>,
) -> Result<Arc<Pool>, Refusal> {
    let none = Alpn::default();
    let request =
        Request { sni: connection.sni, alpn: hello.map_or(&none, |hello| &hello.alpn), source };
    let found = listener.routes.find(&request).and_then(|index| listener.actions.get(index));
    match found.ok_or(Refusal::NoRoute)? {
        Lead::Pool(pool) => Ok(pool.clone()),
        Lead::Split(split, pools) => {
            split_pool(split, pools, connection).cloned().ok_or(Refusal::NoRoute)
        }
        Lead::Reject => Err(Refusal::Reject),
        Lead::Reset => Err(Refusal::Reset),
    }
}

/// Why a connection goes to no pool.
pub(super) enum Refusal {
    NoRoute,
    Reject,
    Reset,
}

/// Tells a client that routing has refused it.
async fn refuse(
    mut client: Socket,
    refusal: Refusal,
    speaks_tls: bool,
    account: &mut Account,
) -> Ended {
    let termination = match refusal {
        Refusal::NoRoute => return turn_away(client, Termination::NoRoute, account).await,
        Refusal::Reject | Refusal::Reset => Termination::Rejected,
    };
    account.ends(termination);
    if matches!(refusal, Refusal::Reset) {
        close::by_reset(&client);
        return Ended::new(termination, Some(client));
    }
    if speaks_tls {
        // Seven bytes always fit into an empty send buffer; a client that is gone needs none.
        let _gone = client.write(&UNRECOGNIZED_NAME);
    }
    close::by_fin(client).await;
    Ended::new(termination, None)
}

/// Closes a connection that never got a backend.
async fn turn_away(client: Socket, termination: Termination, account: &Account) -> Ended {
    account.ends(termination);
    if termination == Termination::Overload {
        close::by_reset(&client);
        return Ended::new(termination, Some(client));
    }
    close::by_fin(client).await;
    Ended::new(termination, None)
}

/// Relays to the end, tells those who do not know of it yet, and says why it ended. An `async fn`
/// would keep its arguments a second time.
fn carry(arrived: Arrived, account: Account) -> impl Future<Output = (Account, Ended)> {
    let Arrived { client, connected, first, timeouts } = arrived;
    let Connected { socket, place, since } = connected;
    let lifetime_ends = account.lifetime_ends(&timeouts);
    let mut relay = Relay::new([client, socket], first, since, timeouts, lifetime_ends);
    let link = Link { account, place, connected: since.into_std(), first_byte: Cell::new(None) };
    async move {
        let end = relay.run(&link.account.worker().scratch, &link).await;
        let Link { mut account, place, first_byte, .. } = link;
        let (first_byte, worker) = (first_byte.get(), account.worker().clone());
        if let Some(took) = first_byte {
            place.pool.first_byte_seconds.record(worker.index, took);
        }
        let backend_first = matches!(end, End::Closed(Side::Backend) | End::Reset(Side::Backend));
        if first_byte.is_none() && backend_first && account.entry().bytes().0 > 0 {
            place.answered(Err(Failure::EarlyClose), &worker.process);
        }
        account.first_byte(first_byte);
        let (termination, told) = match end {
            End::Closed(Side::Client) => (Termination::ClientClosed, true),
            End::Closed(Side::Backend) => (Termination::BackendClosed, true),
            End::Reset(Side::Client) => (Termination::ClientReset, true),
            End::Reset(Side::Backend) => (Termination::BackendReset, true),
            End::Idle => (Termination::IdleTimeout, false),
            End::HalfClosed => (Termination::HalfClosedTimeout, false),
            End::Lifetime => (Termination::Lifetime, false),
            End::Ordered => (account.entry().order.given().unwrap_or(Termination::Error), false),
        };
        account.ends(termination);
        let [client, backend] = relay.into_sockets();
        if told {
            return (account, Ended { termination, _open: [Some(client), Some(backend)] });
        }
        let close = async { tokio::join!(close::by_fin(client), close::by_fin(backend)) };
        Box::pin(close).await;
        (account, Ended::new(termination, None))
    }
}

/// What hash policies look at. A client on a unix socket has no address.
fn connection<'a>(
    (client, local): &(Option<SocketAddr>, Address),
    hello: Option<&'a ClientHello>,
) -> Tuple<'a> {
    let none = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
    Tuple {
        protocol: 6,
        client: client.unwrap_or(none),
        local: local.ip().unwrap_or(none),
        sni: hello.and_then(|hello| hello.sni.as_deref()),
    }
}

/// What the relay reports to.
struct Link {
    account: Account,
    place: Place,
    connected: Instant,
    first_byte: Cell<Option<Duration>>,
}

impl relay::Session for Link {
    fn passed(&self, direction: Direction, bytes: u64) {
        if direction == Direction::Out && self.first_byte.get().is_none() {
            let now = Instant::now();
            let took = now.saturating_duration_since(self.connected);
            self.first_byte.set(Some(took));
            // At once: by the end of the session it would be old.
            self.place.took(now, took);
            self.place.answered(Ok(()), &self.account.worker().process);
        }
        let worker = self.account.worker().index;
        self.account.passed(direction, bytes);
        self.place.lease.backend().passed(worker, direction, bytes);
    }

    fn ended_by_order(&self, waker: &Waker) -> bool {
        self.account.entry().order.poll(waker).is_some()
    }
}
