//! The immutable, compiled form of one configuration that the data plane reads.

mod build;
mod pool;

use std::os::fd::OwnedFd;
use std::sync::Arc;

pub use build::build;
pub use pool::{Backend, Pool, Tried};

use crate::address::Address;
use crate::config::{Config, Timeouts};
use crate::state::ListenerState;

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
    /// When its sessions end.
    pub timeouts: Timeouts,
    /// Where its connections go.
    pub pool: Arc<Pool>,
    /// Its counters.
    pub state: Arc<ListenerState>,
}

/// One bound address: a listening socket for each worker.
#[derive(Debug)]
pub struct ListenSocket {
    /// The address as configured.
    pub bind: Address,
    /// Whether `[::]` leaves IPv4 out.
    pub v6_only: bool,
    /// The address as bound (the kernel chose the port where 0 was asked for).
    pub local: Address,
    /// One descriptor a worker.
    pub fds: Vec<OwnedFd>,
}

impl Snapshot {
    /// The sockets that are bound as this configuration asks, those of this listener first. More
    /// than one only where the kernel chose their ports.
    pub fn sockets(
        &self,
        listener: &str,
        bind: &Address,
        v6_only: bool,
    ) -> Vec<&Arc<ListenSocket>> {
        let (own, others): (Vec<_>, Vec<_>) =
            self.listeners.iter().partition(|entrance| *entrance.listener.name == *listener);
        let sockets = own.into_iter().chain(others).flat_map(|entrance| &entrance.sockets);
        sockets.filter(|socket| socket.bind == *bind && socket.v6_only == v6_only).collect()
    }

    /// The pool of this name.
    pub fn pool(&self, name: &str) -> Option<&Arc<Pool>> {
        self.pools.iter().find(|pool| *pool.name == *name)
    }
}

impl Drop for ListenSocket {
    fn drop(&mut self) {
        if let Address::Unix(path) = &self.local {
            // Somebody may have removed the file already.
            let _missing = std::fs::remove_file(path);
        }
    }
}
