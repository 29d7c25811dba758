//! The immutable, compiled form of one configuration that the data plane reads.

mod build;
mod pool;

mod pick;
mod server_ids;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use ahash::AHashSet;

pub use build::build;
pub use pick::Pick;
pub use pool::{Backend, Pool, Tried};

use crate::address::Address;
use crate::balance::Spec;
use crate::balance::key::{KeyKind, Tuple};
use crate::config::{self, Config, Limits, Preread, Protocol, Timeouts, Udp};
use crate::limits::BACKLOG;
use crate::route::{Routes, Split};
use crate::state::{ListenerState, Sources, Unchanged};
use crate::sys::socket_file::SocketFile;

/// One configuration, ready to be read by workers. Replaced whole, never changed.
#[derive(Debug)]
pub struct Snapshot {
    /// Counts configurations of this process, from 1.
    pub generation: u64,
    /// What it was compiled from.
    pub config: Arc<Config>,
    /// In the order of the file.
    pub listeners: Vec<Entrance>,
    /// In the order of the file.
    pub pools: Vec<Arc<Pool>>,
}

/// A listener and the sockets that lead to it. Sessions hold listeners but never sockets, so that
/// a removed listener's address is free as soon as the workers have let go of it.
#[derive(Debug)]
pub struct Entrance {
    /// The listener.
    pub listener: Arc<Listener>,
    /// One for each bound address.
    pub sockets: Vec<Arc<ListenSocket>>,
}

/// What a connection needs to know of the listener it came by.
#[derive(Debug)]
pub struct Listener {
    /// Its name.
    pub name: Arc<str>,
    /// What clients speak.
    pub protocol: Protocol,
    /// When its sessions end.
    pub timeouts: Arc<Timeouts>,
    /// How many flows it may have.
    pub limits: Limits,
    /// When its flows end.
    pub udp: Udp,
    /// What each source of flows takes, where that is limited.
    pub sources: Option<Arc<Sources>>,
    /// What is read before routing.
    pub preread: Preread,
    /// Whether anything needs the hello to be read.
    pub reads_hello: bool,
    /// Whether backends name themselves in connection ids of QUIC.
    pub knows_server_ids: bool,
    /// The conditions of its routes.
    pub routes: Routes,
    /// Where each route leads.
    pub actions: Vec<Lead>,
    /// Its counters.
    pub state: Arc<ListenerState>,
}

impl Listener {
    /// Whether QUIC connections are told from other datagrams here.
    pub fn speaks_quic(&self) -> bool {
        self.reads_hello || self.knows_server_ids
    }

    /// The pools its routes lead to, in order, each once.
    pub fn pools(&self) -> Vec<&Arc<Pool>> {
        let mut pools: Vec<&Arc<Pool>> = Vec::new();
        let mut seen = AHashSet::new();
        for pool in self.actions.iter().flat_map(Lead::pools) {
            if seen.insert(Arc::as_ptr(pool)) {
                pools.push(pool);
            }
        }
        pools
    }
}

/// Where a route leads.
#[derive(Debug)]
pub enum Lead {
    /// To this pool.
    Pool(Arc<Pool>),
    /// To one of these pools, whose indices the split gives.
    Split(Split, Vec<Arc<Pool>>),
    /// To the TLS alert `unrecognized_name`.
    Reject,
    /// To RST.
    Reset,
}

/// The pool of a split that takes this connection: always the same for the key of the first
/// pool if that hashes, else for the client's address. A five-tuple is another for each connection
/// of a client, who would see both pools: its address counts there too.
pub fn split_pool<'a>(
    split: &Split,
    pools: &'a [Arc<Pool>],
    connection: &Tuple<'_>,
) -> Option<&'a Arc<Pool>> {
    let first = pools.first()?;
    let key = split_key(&first.spec);
    pools.get(split.pick(key.hash(connection, first.hash_seed)))
}

/// What the split of which `first` is the first pool's policy looks at.
pub fn split_key(first: &Spec) -> KeyKind {
    match first.key {
        key if first.policy.hashes() && key != KeyKind::FiveTuple => key,
        _ => KeyKind::Source,
    }
}

impl Lead {
    /// The pools it may lead to.
    pub fn pools(&self) -> &[Arc<Pool>] {
        match self {
            Lead::Pool(pool) => std::slice::from_ref(pool),
            Lead::Split(_, pools) => pools,
            Lead::Reject | Lead::Reset => &[],
        }
    }
}

/// One bound address: a listening socket for each worker.
#[derive(Debug)]
pub struct ListenSocket {
    /// The address as configured.
    pub bind: Address,
    /// Whether it takes connections, or datagrams.
    pub protocol: Protocol,
    /// Whether `[::]` leaves IPv4 out.
    pub v6_only: bool,
    /// The address as bound (the kernel chose the port where 0 was asked for).
    pub local: Address,
    /// One descriptor a worker, until that worker has taken it. The lock is for that moment, and
    /// never taken for a connection.
    fds: Vec<Mutex<Option<OwnedFd>>>,
    /// Set by control, before the socket is published.
    listens: AtomicBool,
    /// The file of a unix socket, which goes with the listener.
    _file: Option<SocketFile>,
}

impl ListenSocket {
    /// A bound address as configured and as the kernel has it, with a descriptor a worker.
    pub fn new(
        bind: Address,
        protocol: Protocol,
        v6_only: bool,
        local: Address,
        fds: Vec<OwnedFd>,
        file: Option<SocketFile>,
    ) -> Self {
        let fds = fds.into_iter().map(|fd| Mutex::new(Some(fd))).collect();
        let listens = AtomicBool::new(false);
        ListenSocket { bind, protocol, v6_only, local, fds, listens, _file: file }
    }

    /// Whether clients can connect.
    pub fn listens(&self) -> bool {
        self.listens.load(Relaxed)
    }

    /// Lets clients connect. Datagrams come from the moment an address is bound, and wait.
    pub fn listen(&self) -> io::Result<()> {
        let stream = self.protocol == Protocol::Tcp;
        for fd in self.fds.iter().filter(|_| stream) {
            if let Some(fd) = fd.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
                rustix::net::listen(fd, BACKLOG)?;
            }
        }
        self.listens.store(true, Relaxed);
        Ok(())
    }

    /// Hands a worker its descriptor, once. With the last one dropped, connections are refused.
    pub fn take(&self, worker: usize) -> Option<OwnedFd> {
        self.fds[worker].lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Snapshot {
    /// The sockets that are bound as `listener` asks. Port 0 is another port each time it is
    /// written, so there a listener finds only what it has had before.
    pub fn sockets(
        &self,
        listener: &config::Listener,
        bind: &Address,
    ) -> impl Iterator<Item = &Arc<ListenSocket>> {
        let (protocol, v6_only) = (listener.protocol, listener.v6_only);
        let any_port = bind.ip().is_some_and(|ip| ip.port() == 0);
        let may_have =
            move |entrance: &&Entrance| !any_port || entrance.listener.name == listener.name;
        let sockets = self.listeners.iter().filter(may_have).flat_map(|entrance| &entrance.sockets);
        let kind = (bind, protocol, v6_only);
        sockets.filter(move |socket| (&socket.bind, socket.protocol, socket.v6_only) == kind)
    }

    /// The backend of this name in `pool`, or at this address if none is called that.
    pub fn backend(&self, pool: &str, backend: &str) -> Result<(&Arc<Pool>, &Backend), Unchanged> {
        let pool = self.pool(pool).ok_or(Unchanged::NoPool)?;
        let named = pool.backends.iter().find(|known| *known.name == *backend);
        let address: Option<Address> = backend.parse().ok();
        let is_there = |known: &&Backend| address.as_ref() == Some(&known.state.address);
        let found = named.or_else(|| pool.backends.iter().find(is_there));
        found.map(|backend| (pool, backend)).ok_or(Unchanged::NoBackend)
    }

    /// The pools to which connections are kept ready, each once: those that want it and that a
    /// listener leads to.
    pub fn kept_ready(&self) -> Vec<&Arc<Pool>> {
        let mut seen = AHashSet::new();
        if self.pools.iter().all(|pool| pool.ready.count == 0) {
            return Vec::new();
        }
        let leads = self.listeners.iter().flat_map(|entrance| &entrance.listener.actions);
        let wants = |pool: &&Arc<Pool>| pool.ready.count > 0 && seen.insert(Arc::as_ptr(pool));
        leads.flat_map(Lead::pools).filter(wants).collect()
    }

    /// The pool of this name.
    pub fn pool(&self, name: &str) -> Option<&Arc<Pool>> {
        self.pools.iter().find(|pool| *pool.name == *name)
    }
}
