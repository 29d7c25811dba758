//! A process with one listener and one pool, for the tests of this module.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use crate::address::Address;
use crate::balance::key::KeyKind;
use crate::balance::{PolicyKind, Spec};
use crate::config::{
    self, Admin, Config, Log, LogFormat, LogLevel, MaxConnections, Shutdown, Timeouts, Workers,
};
use crate::snapshot::{self, Snapshot};
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
        Fixture::balanced_by(PolicyKind::LeastConn, name, backends)
    }

    /// The same with this policy.
    pub fn balanced_by(policy: PolicyKind, name: &str, backends: &[&str]) -> Self {
        let (process, inbox) = Process::new(2);
        let snapshot = snapshot(&process, policy, name, backends);
        Fixture { process, snapshot, inbox }
    }

    /// As a reload does.
    pub fn replace(&mut self, name: &str, backends: &[&str]) {
        self.snapshot = snapshot(&self.process, PolicyKind::LeastConn, name, backends);
    }

    pub fn render(&self) -> String {
        super::metrics::render(&self.process, &self.snapshot)
    }
}

/// A backend's address is a function of its name, and in the same order.
fn address(name: &str) -> Address {
    Address::Unix(format!("/{name}").into())
}

fn snapshot(process: &Process, policy: PolicyKind, name: &str, backends: &[&str]) -> Arc<Snapshot> {
    let config = Arc::new(config(policy, name.into(), backends));
    let nothing_bound = vec![Vec::new()];
    Arc::new(
        snapshot::build(config, 1, nothing_bound, &process.registry)
            .expect("a valid configuration"),
    )
}

fn config(policy: PolicyKind, name: Arc<str>, backends: &[&str]) -> Config {
    let bind = Address::Ip((Ipv4Addr::LOCALHOST, 0).into());
    let backends =
        backends.iter().map(|&backend| config::Backend::new(backend.into(), address(backend)));
    let pool = config::Pool {
        balance: Spec { policy, key: KeyKind::Source, table_size: 65_537, bounded_load: None },
        health: None,
        ..config::Pool::new(name.clone(), backends.collect())
    };
    let timeouts = Timeouts {
        idle: None,
        half_closed: None,
        lifetime: None,
        keepalive: None,
        user_timeout: None,
    };
    let route = config::Route::unconditional(config::Action::Pool(0));
    let listener = config::Listener {
        timeouts,
        ..config::Listener::new(name, vec![bind.clone()], vec![route])
    };
    Config {
        workers: Workers::Auto,
        hash_seed: 0,
        admin: Some(Admin { bind, token_file: None }),
        log: Log { level: LogLevel::Info, format: LogFormat::Text },
        access_log: None,
        shutdown: Shutdown { delay: Duration::ZERO, grace: Duration::ZERO },
        max_connections: MaxConnections::Auto,
        listeners: vec![listener],
        pools: vec![pool],
    }
}
