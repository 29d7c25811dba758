//! The immutable, compiled form of one configuration that the data plane reads.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::address::Address;
use crate::balance::Spec;
use crate::config::{Config, Connect, PanicThreshold, Timeouts};
use crate::state::{BackendState, ListenerState, PoolState};

/// One configuration, ready to be read by workers. Replaced whole, never changed.
#[derive(Debug)]
pub struct Snapshot {
    /// Counts configurations of this process, from 1.
    pub generation: u64,
    /// What it was compiled from.
    pub config: Arc<Config>,
    /// In the order of the file.
    pub listeners: Vec<Arc<Listener>>,
    /// In the order of the file.
    pub pools: Vec<Arc<Pool>>,
}

/// A listener with its sockets and its pool.
#[derive(Debug)]
pub struct Listener {
    /// Its name.
    pub name: Arc<str>,
    /// When its sessions end.
    pub timeouts: Timeouts,
    /// Where its connections go.
    pub pool: Arc<Pool>,
    /// Its counters.
    pub state: Arc<ListenerState>,
    /// One for each bound address.
    pub sockets: Vec<Arc<ListenSocket>>,
}

/// One bound address: a listening socket for each worker.
#[derive(Debug)]
pub struct ListenSocket {
    /// The address as configured.
    pub bind: Address,
    /// The address as bound (the kernel chose the port where 0 was asked for).
    pub local: Address,
    /// One descriptor a worker.
    pub fds: Vec<OwnedFd>,
}

/// A pool with its policy's tables.
#[derive(Debug)]
pub struct Pool {
    /// Its name.
    pub name: Arc<str>,
    /// The policy and its parameters.
    pub spec: Spec,
    /// Ordered by canonical address, bytewise.
    pub backends: Vec<Backend>,
    /// How backends are connected to.
    pub connect: Connect,
    /// When the state of backends is ignored.
    pub panic_threshold: PanicThreshold,
    /// Its counters.
    pub state: Arc<PoolState>,
}

/// A backend in its pool.
#[derive(Debug)]
pub struct Backend {
    /// Its name in this configuration.
    pub name: Arc<str>,
    /// Its weight.
    pub weight: u16,
    /// Where it is, its state and its counters.
    pub state: Arc<BackendState>,
}
