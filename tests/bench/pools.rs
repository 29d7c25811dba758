//! Pools of any policy and size, some of whose backends have sessions.

use std::fmt;
use std::sync::{Arc, Mutex};

use pointsman::config::{self, Config};
use pointsman::health::State;
use pointsman::snapshot::{Pool, build};
use pointsman::state::{Lease, Registry};

pub const BALANCES: &[&str] = &[
    "round_robin",
    "random",
    "least_conn",
    "p2c",
    "peak_ewma",
    "hash",
    "ring",
    "rendezvous",
    "maglev",
    "{ policy: maglev, bounded_load: 1.25 }",
];

/// A policy over so many backends.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Case {
    pub balance: &'static str,
    pub backends: usize,
    /// One of them is down.
    pub down: bool,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bounded = if self.balance.contains("bounded") { " bounded" } else { "" };
        let name = self.balance.trim_start_matches("{ policy: ");
        let name = name.split(',').next().unwrap_or(name);
        write!(f, "{name}{bounded} {}", self.backends)?;
        if self.down { f.write_str(", one down") } else { Ok(()) }
    }
}

pub fn configure(case: Case) -> Arc<Config> {
    let mut text = format!(
        "listeners: {{ l: {{ bind: 127.0.0.1:1, pool: p }} }}\n\
         pools: {{ p: {{ health: off, balance: {}, backends: [",
        case.balance
    );
    for i in 0..case.backends {
        text += &format!("10.{}.{}.{}:443, ", i / 62_500, i / 250 % 250, i % 250 + 1);
    }
    text += "] } }";
    Arc::new(config::parse(&text, "bench").expect("a valid configuration"))
}

pub fn build_pool(config: Arc<Config>, registry: &Registry) -> Arc<Pool> {
    build(config, 1, vec![Vec::new()], registry).expect("a valid policy").pools.remove(0)
}

/// A pool with up to two sessions a backend, which stay.
pub struct Loaded {
    pub pool: Arc<Pool>,
    _sessions: Mutex<Vec<Lease>>,
}

impl Loaded {
    pub fn new(case: Case) -> Self {
        let pool = build_pool(configure(case), &Registry::new(2));
        if case.down {
            pool.backends[case.backends / 2].state.set_state(State::Down);
            pool.weigh();
        }
        let backends = pool.backends.iter().enumerate();
        let sessions = backends.flat_map(|(i, b)| (0..i % 3).filter_map(|_| b.state.lease().ok()));
        Loaded { _sessions: Mutex::new(sessions.collect()), pool }
    }
}
