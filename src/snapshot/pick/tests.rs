use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use super::*;
use crate::balance::{FULL_PULL, PolicyKind};
use crate::config;
use crate::state::{AdminState, Registry};

/// A pool of four backends, the first of weight 0, all up.
fn pool(keys: &str) -> Arc<Pool> {
    pool_of(
        keys,
        "[{ address: 10.0.0.1:1, weight: 0 }, { address: 10.0.0.2:1, weight: 2 },
        { address: 10.0.0.3:1, weight: 3 }, { address: 10.0.0.4:1, weight: 5 }]",
    )
}

fn pool_of(keys: &str, backends: &str) -> Arc<Pool> {
    let text = format!(
        "listeners: {{ l: {{ bind: 127.0.0.1:1, pool: p }} }}
pools: {{ p: {{ health: off, {keys}, backends: {backends} }} }}"
    );
    let config = Arc::new(config::parse(&text, "test").unwrap());
    let snapshot = crate::snapshot::build(config, 1, vec![Vec::new()], &Registry::new(1));
    let pool = snapshot.unwrap().pools.remove(0);
    pool.set_bounds();
    pool
}

fn hash(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn place(pool: &Pool, n: u64, rng: &mut fastrand::Rng) -> (usize, Lease) {
    match pool.pick(&Tried::default(), || hash(n), rng) {
        Pick::Backend(index, lease) => (index, lease),
        other => panic!("{other:?}"),
    }
}

/// How often each of the backends is picked, with nothing under way.
fn shares(pool: &Pool, picks: u64) -> Vec<u64> {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut counts = vec![0; pool.backends.len()];
    for n in 0..picks {
        counts[place(pool, n, &mut rng).0] += 1;
    }
    counts
}

/// What a pick knows without looking is what it would see.
#[test]
fn sums_are_of_what_is_usable() {
    let pool = pool("balance: hash");
    let check = |tried: &[usize], stage: Stage, weight: u32| {
        let mut before = Tried::default();
        tried.iter().for_each(|&index| before.add(index));
        let mut rng = fastrand::Rng::with_seed(0);
        let mut view = Candidates::new(&pool, &before, 0, &mut rng);
        view.stage = stage;
        let usable = (0..4).filter(|&index| view.usable(index));
        let seen: u32 = usable.map(|index| u32::from(view.weight(index))).sum();
        assert_eq!((view.usable_weight(), seen), (weight, weight), "{tried:?} {stage:?}");
        let active = (0..4).map(|index| view.active(index)).sum::<u32>();
        assert_eq!(view.total_active(), active);
    };
    check(&[], Stage::PLAIN, 10);
    check(&[3, 0], Stage::PLAIN, 5);
    check(&[1, 2, 3], Stage::PLAIN, 0);
    let _leases = [1, 1, 3].map(|index| pool.backends[index].state.lease().unwrap());
    pool.backends[2].state.set_state(State::Down);
    pool.weigh();
    check(&[], Stage::PLAIN, 7);
    check(&[2], Stage::PLAIN, 7);
    check(&[1], Stage::PLAIN, 5);
    let panic = Stage { panic: true, ..Stage::PLAIN };
    check(&[], panic, 10);
    check(&[1], panic, 8);
}

/// A state that changed after the last sum was made costs a search, and no wrong pick.
#[test]
fn stale_sums_pick_what_is_up() {
    for kind in PolicyKind::ALL.into_iter().filter(|kind| kind.hashes()) {
        let pool = pool(&format!("balance: {{ policy: {kind}, bounded_load: 1.25 }}"));
        pool.backends[3].state.set_state(State::Down);
        let counts = shares(&pool, 1000);
        assert_eq!((counts[0], counts[3]), (0, 0), "{kind}: {counts:?}");
    }
}

/// What is slow is passed by, and what was never measured is no magnet.
#[test]
fn latency_is_felt() {
    let pool = pool("balance: peak_ewma");
    let now = Instant::now();
    let took = |index: usize, ms: u64| {
        let took = std::time::Duration::from_millis(ms);
        pool.backends[index].state.took(now, took);
        pool.state.took(now, took);
    };
    took(1, 1000);
    took(2, 1);
    let counts = shares(&pool, 1000);
    // Of any two the quick one wins; the slow one never does, and the unmeasured, which counts
    // as the mean of the pool, only against it: where the quick one is not drawn.
    assert_eq!(counts[1], 0, "{counts:?}");
    assert!(counts[2] > counts[3] && counts[3] > 0, "{counts:?}");
}

/// Backups come when nothing else can be picked: down, tried or full. Panic comes after them.
#[test]
fn backups_are_last() {
    for kind in PolicyKind::ALL {
        let backends = "[{ address: 10.0.0.1:1, max_connections: 2 }, 10.0.0.2:1,
            { address: 10.0.0.3:1, backup: true, max_connections: 1 }]";
        let pool = pool_of(&format!("balance: {kind}"), backends);
        let mut rng = fastrand::Rng::with_seed(3);
        assert_eq!(shares(&pool, 200)[2], 0, "{kind}");
        pool.backends[1].state.set_state(State::Down);
        pool.weigh();
        let leases = [0, 1, 2].map(|n| place(&pool, n, &mut rng));
        assert_eq!(leases.each_ref().map(|l| l.0), [0, 0, 2], "{kind}");
        let next = |rng: &mut _| pool.pick(&Tried::default(), || 7, rng);
        assert!(matches!(next(&mut rng), Pick::BackendsFull), "{kind}");
        assert!(!pool.should_panic());
        pool.backends.iter().for_each(|backend| backend.state.set_state(State::Down));
        pool.weigh();
        assert!(matches!(next(&mut rng), Pick::Nothing), "{kind}");
        assert!(pool.should_panic());
        pool.state.set_panic(true);
        // The one that is not full.
        assert_eq!(place(&pool, 1, &mut rng).0, 1, "{kind}");
    }
}

/// What is drained keeps its keys for when it is back, and not even panic gives it one.
#[test]
fn drained_is_passed_over() {
    for (kind, admin) in PolicyKind::ALL
        .into_iter()
        .flat_map(|kind| [(kind, AdminState::Drain), (kind, AdminState::Maintenance)])
    {
        let pool = pool(&format!("balance: {kind}, panic_threshold: 100"));
        let picks = |pool: &Pool| -> Vec<usize> {
            let mut rng = fastrand::Rng::with_seed(7);
            (0..1000).map(|n| place(pool, n, &mut rng).0).collect()
        };
        let before = picks(&pool);
        assert!(!pool.should_panic());
        pool.backends[2].state.set_admin(admin);
        pool.weigh();
        let now = picks(&pool);
        assert!(now.iter().all(|&index| index != 2), "{kind}");
        if kind.hashes() && kind != PolicyKind::Hash {
            let mut moves = before.iter().zip(&now).filter(|(before, now)| before != now);
            assert!(moves.all(|(&before, _)| before == 2), "{kind}");
        }
        // It counts neither as usable nor in the total.
        assert!(!pool.should_panic(), "{kind}");
        pool.backends[1].state.set_state(State::Down);
        assert!(pool.should_panic(), "{kind}");
        pool.state.set_panic(true);
        let counts = shares(&pool, 1000);
        assert_eq!(counts[2], 0, "{kind}: {counts:?}");
        for index in [1, 3] {
            pool.backends[index].state.set_admin(admin);
        }
        pool.weigh();
        let next = pool.pick(&Tried::default(), || 7, &mut fastrand::Rng::with_seed(7));
        assert!(matches!(next, Pick::Nothing), "{kind}");
        assert!(!pool.should_panic(), "nothing that ignoring states could bring back");
        pool.state.set_panic(false);
        pool.backends[1].state.set_state(State::Up);
        pool.backends.iter().for_each(|b| b.state.set_admin(AdminState::Ready));
        pool.weigh();
        if kind.hashes() {
            assert_eq!(picks(&pool), before, "{kind}");
        }
    }
}

/// Case 21: no cap is ever exceeded, and what is given back can be had again.
#[test]
fn caps_hold_with_many_threads() {
    for kind in PolicyKind::ALL {
        let backends = "[{ address: 10.0.0.1:1, max_connections: 3 },
            { address: 10.0.0.2:1, max_connections: 2, weight: 5 }]";
        let pool = pool_of(&format!("balance: {kind}, max_connections: 4"), backends);
        let placed = AtomicU32::new(0);
        let check = &|thread: u64| {
            let mut rng = fastrand::Rng::with_seed(thread);
            let mut held = Vec::new();
            for n in 0..2000 {
                match pool.pick(&Tried::default(), || hash(n), &mut rng) {
                    Pick::Backend(_, lease) => {
                        placed.fetch_add(1, Relaxed);
                        held.push(lease);
                    }
                    Pick::BackendsFull | Pick::PoolFull => held.clear(),
                    Pick::Nothing => panic!("{kind}: nothing"),
                }
                let active = |index: usize| pool.backends[index].state.active();
                assert!(active(0) <= 3 && active(1) <= 2, "{kind}");
            }
        };
        std::thread::scope(|scope| {
            (0..4).for_each(|thread| drop(scope.spawn(move || check(thread))));
        });
        assert!(placed.load(Relaxed) > 100, "{kind}");
        assert_eq!(pool.state.active(), 0);
        let mut rng = fastrand::Rng::with_seed(0);
        let places = [0, 1, 2, 3].map(|n| place(&pool, hash(n), &mut rng));
        let next = pool.pick(&Tried::default(), || 9, &mut rng);
        assert!(matches!(next, Pick::PoolFull), "{kind}: {places:?} {next:?}");
    }
}

/// One of three at a tenth of its pull: a tenth of a share against two whole ones.
#[test]
fn warming_up_gets_less() {
    let expected = 10_000.0 * 0.1 / 2.1;
    for kind in PolicyKind::ALL {
        if [PolicyKind::LeastConn, PolicyKind::P2c, PolicyKind::PeakEwma].contains(&kind) {
            continue; // these go by load, below
        }
        let pool = pool_of(&format!("balance: {kind}"), "[10.0.0.1:1, 10.0.0.2:1, 10.0.0.3:1]");
        pool.backends[1].state.set_pull(10);
        pool.state.set_warming(1);
        let counts = shares(&pool, 10_000);
        // Of a hash: a tenth of its own keys, a third of all, and none of the others'.
        let share = counts[1] as f64;
        let low = 10_000.0 * 0.1 / 3.0;
        assert!((low * 0.7..=expected * 1.3).contains(&share), "{kind}: {counts:?}");
        // With nothing else it takes all.
        for index in [0, 2] {
            pool.backends[index].state.set_state(State::Down);
        }
        pool.weigh();
        assert_eq!(shares(&pool, 100), [0, 100, 0], "{kind}");
    }
}

/// Among those that stay, loads stand in the proportion of weight times pull.
#[test]
fn warming_up_carries_less() {
    for kind in [PolicyKind::LeastConn, PolicyKind::P2c, PolicyKind::PeakEwma] {
        let pool = pool_of(&format!("balance: {kind}"), "[10.0.0.1:1, 10.0.0.2:1]");
        pool.backends[1].state.set_pull(25);
        pool.state.set_warming(1);
        let mut rng = fastrand::Rng::with_seed(5);
        let held: Vec<_> = (0..1000).map(|n| place(&pool, n, &mut rng)).collect();
        let active = pool.backends[1].state.active();
        assert!((195..=205).contains(&active), "{kind}: {active}");
        drop(held);
        // Half of a share and nothing to do is less than a whole one with three sessions.
        pool.backends[1].state.set_pull(50);
        let _busy = [(); 3].map(|()| pool.backends[0].state.lease().unwrap());
        (0..50).for_each(|n| assert_eq!(place(&pool, n, &mut rng).0, 1, "{kind}"));
    }
}

/// As a backend warms up keys come to it and none goes away.
#[test]
fn keys_move_once_while_warming_up() {
    for kind in [PolicyKind::Ring, PolicyKind::Rendezvous, PolicyKind::Maglev] {
        let pool = pool_of(&format!("balance: {kind}"), "[10.0.0.1:1, 10.0.0.2:1, 10.0.0.3:1]");
        pool.state.set_warming(1);
        let mut rng = fastrand::Rng::with_seed(5);
        let mut before: Vec<usize> = Vec::new();
        for pull in [1, 10, 40, 90, FULL_PULL] {
            pool.backends[1].state.set_pull(pull);
            let now: Vec<_> = (0..1000).map(|n| place(&pool, n, &mut rng).0).collect();
            let mut moves = before.iter().zip(&now).filter(|(before, now)| before != now);
            assert!(moves.all(|(_, &now)| now == 1), "{kind} at {pull}");
            before = now;
        }
        pool.state.set_warming(0);
        let full: Vec<_> = (0..1000).map(|n| place(&pool, n, &mut rng).0).collect();
        assert_eq!(before, full, "{kind}");
    }
}
