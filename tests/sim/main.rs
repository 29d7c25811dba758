//! Seeded simulation on a virtual clock, under faults, flaps and reloads: of checks, panic and
//! every policy (`world`), and of the whole of the health logic (`faults`). It drives the very
//! types of the data plane; each run is a function of its seed.
//!
//! A failing seed is printed. `SIM_SEED=N cargo test --test sim` runs that one alone.

mod faults;
mod oracle;
mod world;

use std::fmt::Display;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use pointsman::balance::PolicyKind;

use world::World;

/// Seeds of each policy.
const SEEDS: u64 = 256;

/// Runs the whole life of a pool with each seed.
fn check(policy: PolicyKind) {
    each_seed(0..SEEDS, policy, |seed| World::new(policy, seed).live());
}

fn each_seed<T>(seeds: Range<u64>, what: impl Display, live: impl Fn(u64) -> T) {
    let alone =
        std::env::var("SIM_SEED").ok().map(|seed| seed.parse().expect("SIM_SEED: a number"));
    for seed in alone.map_or(seeds, |seed: u64| seed..seed + 1) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| live(seed))) {
            eprintln!("{what} failed with SIM_SEED={seed}");
            resume_unwind(panic);
        }
    }
}

/// The health logic under random faults. Half of the seeds each, for two cores to share.
#[test]
fn faults_first_half() {
    check_faults(0..SEEDS / 2);
}

#[test]
fn faults_second_half() {
    check_faults(SEEDS / 2..SEEDS);
}

fn check_faults(seeds: Range<u64>) {
    each_seed(seeds, "health logic", |seed| faults::World::new(seed).live());
}

#[test]
fn round_robin() {
    check(PolicyKind::RoundRobin);
}

#[test]
fn random() {
    check(PolicyKind::Random);
}

#[test]
fn least_conn() {
    check(PolicyKind::LeastConn);
}

#[test]
fn p2c() {
    check(PolicyKind::P2c);
}

#[test]
fn peak_ewma() {
    check(PolicyKind::PeakEwma);
}

#[test]
fn hash() {
    check(PolicyKind::Hash);
}

#[test]
fn ring() {
    check(PolicyKind::Ring);
}

#[test]
fn rendezvous() {
    check(PolicyKind::Rendezvous);
}

#[test]
fn maglev() {
    check(PolicyKind::Maglev);
}

/// A simulation that nothing ever happens in would prove nothing.
#[test]
fn the_worlds_are_eventful() {
    let mut total = world::Tally::default();
    for seed in 0..32 {
        let tally = World::new(PolicyKind::P2c, seed).live();
        total.picks += tally.picks;
        total.retries += tally.retries;
        total.no_backend += tally.no_backend;
        total.transitions += tally.transitions;
        total.panics += tally.panics;
        total.reloads += tally.reloads;
    }
    println!("{total:?}");
    assert!(total.picks > 10_000, "{total:?}");
    assert!(total.retries > 100, "{total:?}");
    assert!(total.no_backend > 10, "{total:?}");
    assert!(total.transitions > 500, "{total:?}");
    assert!(total.panics > 10, "{total:?}");
    assert!(total.reloads > 100, "{total:?}");
}

/// The same for faults: everything that can happen to an ejection happens.
#[test]
fn faults_are_eventful() {
    let mut total = faults::Tally::default();
    (0..32).for_each(|seed| total.add(&faults::World::new(seed).live()));
    println!("{total:?}");
    assert!(total.connections > 10_000, "{total:?}");
    assert!(total.served > total.connections / 2, "{total:?}");
    assert!(total.retries > 500 && total.hedges > 100, "{total:?}");
    assert!(total.exhausted > 50, "{total:?}");
    assert!(total.panics > 10, "{total:?}");
    assert!(total.ejected > 100 && total.ejected_again > 30, "{total:?}");
    assert!(total.tried > 50 && total.disproved > 30, "{total:?}");
    assert!(total.cancelled_trials > 10 && total.denied > 30, "{total:?}");
}

#[test]
fn equal_seeds_live_alike() {
    for policy in PolicyKind::ALL {
        assert_eq!(World::new(policy, 7).live(), World::new(policy, 7).live());
    }
    assert_eq!(faults::World::new(7).live(), faults::World::new(7).live());
}
