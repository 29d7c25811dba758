//! What a pick costs by policy, number of backends and threads that pick at once, and what the
//! tables of a pool cost: `cargo bench --bench balance`.
//!
//! `choose` is the policy's decision; `place` takes a place on the backend as well, and gives it
//! back. The first of `threads` picks alone.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock, Mutex};

use divan::{Bencher, black_box};
use pointsman::config::{self, Config};
use pointsman::health::State;
use pointsman::snapshot::{Pool, Tried, build};
use pointsman::state::{Lease, Registry};

const BALANCES: &[&str] = &[
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
const BACKENDS: &[usize] = &[10, 100, 1000, 10_000];

fn main() {
    divan::main();
}

/// A policy over so many backends.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Case {
    balance: &'static str,
    backends: usize,
    /// One of them is down.
    down: bool,
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

fn cases() -> Vec<Case> {
    let of =
        |&balance| BACKENDS.iter().map(move |&backends| Case { balance, backends, down: false });
    BALANCES.iter().flat_map(of).collect()
}

fn whole() -> Vec<Case> {
    cases().into_iter().filter(|case| case.backends == 1000).collect()
}

fn hurt() -> Vec<Case> {
    let of = |&balance| Case { balance, backends: 1000, down: true };
    BALANCES.iter().map(of).collect()
}

fn configure(case: Case) -> Arc<Config> {
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

fn build_pool(config: Arc<Config>, registry: &Registry) -> Arc<Pool> {
    build(config, 1, vec![Vec::new()], registry).expect("a valid policy").pools.remove(0)
}

/// A pool with up to two sessions a backend, which stay.
struct Loaded {
    pool: Arc<Pool>,
    _sessions: Mutex<Vec<Lease>>,
}

impl Loaded {
    fn new(case: Case) -> Self {
        let pool = build_pool(configure(case), &Registry::new(2));
        if case.down {
            pool.backends[case.backends / 2].state.set_state(State::Down);
            pool.weigh();
        }
        let backends = pool.backends.iter().enumerate();
        let sessions = backends.flat_map(|(i, b)| (0..i % 3).filter_map(|_| b.state.lease().ok()));
        Loaded { _sessions: Mutex::new(sessions.collect()), pool }
    }

    /// Built once.
    fn get(case: Case) -> Arc<Loaded> {
        static ALL: LazyLock<Mutex<HashMap<Case, Arc<Loaded>>>> = LazyLock::new(Mutex::default);
        let mut all = ALL.lock().expect("nobody has panicked");
        all.entry(case).or_insert_with(|| Arc::new(Loaded::new(case))).clone()
    }
}

#[divan::bench(args = cases(), threads = [1, 2])]
fn choose(bencher: Bencher<'_, '_>, case: Case) {
    let loaded = Loaded::get(case);
    bencher.with_inputs(|| fastrand::u64(..)).bench_values(|hash| {
        let mut rng = fastrand::Rng::with_seed(hash);
        loaded.pool.choose(&Tried::default(), black_box(hash), &mut rng)
    });
}

#[divan::bench(args = hurt())]
fn choose_around_one_that_is_down(bencher: Bencher<'_, '_>, case: Case) {
    choose(bencher, case);
}

#[divan::bench(args = whole(), threads = [1, 2])]
fn place(bencher: Bencher<'_, '_>, case: Case) {
    let loaded = Loaded::get(case);
    bencher.with_inputs(|| fastrand::u64(..)).bench_values(|hash| {
        let mut rng = fastrand::Rng::with_seed(hash);
        drop(loaded.pool.pick(&Tried::default(), || black_box(hash), &mut rng));
    });
}

#[divan::bench(args = cases(), sample_count = 10, sample_size = 1)]
fn tables(bencher: Bencher<'_, '_>, case: Case) {
    let config = configure(case);
    bencher.bench(|| build_pool(config.clone(), &Registry::new(2)));
}
