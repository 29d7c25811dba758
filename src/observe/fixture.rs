//! A process with one listener and one pool, for the tests of this module.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::address::Address;
use crate::balance::key::KeyKind;
use crate::balance::{PolicyKind, Spec};
use crate::config::{
    Admin, Config, Connect, Log, LogFormat, LogLevel, MaxConnections, PanicThreshold, Shutdown,
    Timeouts, Workers,
};
use crate::health::State;
use crate::snapshot::{Backend, Listener, Pool, Snapshot};
use crate::state::Process;
use crate::state::process::Inbox;

pub(super) struct Fixture {
    pub process: Arc<Process>,
    pub snapshot: Arc<Snapshot>,
    pub inbox: Inbox,
}

impl Fixture {
    /// Listener and pool have the same name; nothing is bound.
    pub fn new(name: &str, backends: &[&str]) -> Self {
        let (process, inbox) = Process::new(2);
        let snapshot = snapshot(&process, name, backends);
        Fixture { process, snapshot, inbox }
    }

    /// As a reload does.
    pub fn replace(&mut self, name: &str, backends: &[&str]) {
        self.snapshot = snapshot(&self.process, name, backends);
    }

    pub fn render(&self) -> String {
        super::metrics::render(&self.process, &self.snapshot)
    }
}

/// A backend's address is a function of its name.
fn address(name: &str) -> Address {
    let host = xxhash_rust::xxh64::xxh64(name.as_bytes(), 0) as u32;
    Address::Ip(SocketAddr::from((Ipv4Addr::from(host), 80)))
}

fn snapshot(process: &Process, name: &str, backends: &[&str]) -> Arc<Snapshot> {
    let name: Arc<str> = name.into();
    let backends = backends.iter().map(|&backend| {
        let backend: Arc<str> = backend.into();
        let state = process.registry.backend(&name, &backend, &address(&backend), State::Up);
        Backend { name: backend, weight: 1, state }
    });
    let pool = Arc::new(Pool {
        name: name.clone(),
        spec: Spec { policy: PolicyKind::LeastConn, key: KeyKind::Source, table_size: 65_537 },
        backends: backends.collect(),
        connect: Connect { timeout: Duration::from_secs(1), attempts: 3 },
        panic_threshold: PanicThreshold::Percent(0),
        state: process.registry.pool(&name),
    });
    let listener = Listener {
        name: name.clone(),
        timeouts: Timeouts {
            idle: None,
            half_closed: None,
            lifetime: None,
            keepalive: None,
            user_timeout: None,
        },
        pool: pool.clone(),
        state: process.registry.listener(&name),
        sockets: Vec::new(),
    };
    Arc::new(Snapshot {
        generation: 1,
        config: Arc::new(config()),
        listeners: vec![Arc::new(listener)],
        pools: vec![pool],
    })
}

fn config() -> Config {
    let bind = Address::Ip((Ipv4Addr::LOCALHOST, 0).into());
    Config {
        workers: Workers::Auto,
        hash_seed: 0,
        admin: Some(Admin { bind, token_file: None }),
        log: Log { level: LogLevel::Info, format: LogFormat::Text },
        access_log: None,
        shutdown: Shutdown { delay: Duration::ZERO, grace: Duration::ZERO },
        max_connections: MaxConnections::Auto,
        listeners: Vec::new(),
        pools: Vec::new(),
    }
}
