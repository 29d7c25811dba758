//! Bounded loads, over every hash policy.

use super::*;

const HASHES: [PolicyKind; 4] =
    [PolicyKind::Hash, PolicyKind::Ring, PolicyKind::Rendezvous, PolicyKind::Maglev];

/// ⌈C × (total + 1) × w / Σw⌉, the sum over what is usable.
fn cap(pool: &Pool, thousandths: u32, index: usize) -> u64 {
    let total: u64 = pool.active.iter().map(|&active| u64::from(active)).sum();
    let usable = pool.weights.iter().zip(&pool.usable).filter(|&(_, &usable)| usable);
    let sum: u64 = usable.map(|(&weight, _)| u64::from(weight)).sum();
    let share = u64::from(thousandths) * (total + 1) * u64::from(pool.weights[index]);
    share.div_ceil(1000 * sum)
}

/// A pool under one key that half of the traffic has, and others that come and go; backends go down
/// with the sessions they have, and come back.
fn run(kind: PolicyKind, thousandths: u32, seed: u64) {
    let weights = [1, 1, 2, 1, 3, 1, 1, 0, 1, 5];
    let bounded_load = Bound::new(thousandths);
    let policy = build_spec(&Spec { bounded_load, ..spec(kind) }, &keys(10), &weights);
    let free = build(kind, &keys(10), &weights);
    let mut pool = Pool::new(&weights);
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut sessions: Vec<usize> = Vec::new();
    let mut overflows = 0;
    for step in 0..20_000 {
        if step % 500 == 499 {
            let index = rng.usize(..10);
            pool.usable[index] = weights[index] > 0 && !pool.usable[index];
        }
        let some_up = pool.usable.contains(&true);
        if !sessions.is_empty() && (!some_up || sessions.len() > rng.usize(..1000)) {
            let ended = sessions.swap_remove(rng.usize(..sessions.len()));
            pool.active[ended] -= 1;
            continue;
        }
        if !some_up {
            continue;
        }
        let hash = if rng.bool() { mix(7) } else { rng.u64(..) };
        let home = pick(&free, &pool, hash).unwrap();
        let picked = pick(&policy, &pool, hash).unwrap();
        let room = |index: usize| u64::from(pool.active[index]) < cap(&pool, thousandths, index);
        assert!(pool.usable[picked] && room(picked), "{kind}: above the cap at step {step}");
        assert!(picked == home || !room(home), "{kind}: not at home at step {step}");
        overflows += u32::from(picked != home);
        pool.active[picked] += 1;
        sessions.push(picked);
    }
    // A celebrity's 50 % are more than the cap even of a third of the weight at 1.25.
    assert!(overflows > 500 || thousandths > 1250, "{kind}: {overflows}");
}

#[test]
fn no_pick_breaks_the_cap() {
    for kind in HASHES {
        for (thousandths, seed) in [(1000, 1), (1250, 2), (1250, 3), (2000, 4)] {
            run(kind, thousandths, seed);
        }
    }
}

/// Being full moves a key as being down does: both are passed over in the policy's own order.
#[test]
fn full_is_passed_over_like_down() {
    for kind in [PolicyKind::Ring, PolicyKind::Rendezvous, PolicyKind::Maglev] {
        let bounded = Spec { bounded_load: Bound::new(1000), ..spec(kind) };
        let policy = build_spec(&bounded, &keys(10), &[1; 10]);
        let free = build(kind, &keys(10), &[1; 10]);
        let mut pool = Pool::new(&[1; 10]);
        pool.active = vec![5, 5, 9, 5, 5, 5, 9, 5, 5, 5];
        let mut down = pool.clone();
        (down.usable[2], down.usable[6]) = (false, false);
        for hash in (0..2000).map(mix) {
            assert_eq!(pick(&policy, &pool, hash), pick(&free, &down, hash), "{kind}");
        }
    }
}

/// Nobody has room: the bound gives way, and the key goes home.
#[test]
fn full_everywhere_is_not_refused() {
    for kind in HASHES {
        let bounded = Spec { bounded_load: Bound::new(1000), ..spec(kind) };
        let policy = build_spec(&bounded, &keys(3), &[1; 3]);
        let mut pool = Pool::new(&[1; 3]);
        // The two without load are down, and what is up has more than its whole share of 100.
        pool.active = vec![100, 0, 0];
        pool.usable = vec![true, false, false];
        let tried = Full(pool);
        assert_eq!(pick(&policy, &tried, mix(1)), Some(0), "{kind}");
    }
}

/// Its usable weight counts backends that this connection has been to.
struct Full(Pool);

impl View for Full {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn usable(&self, index: usize) -> bool {
        self.0.usable(index)
    }

    fn active(&self, index: usize) -> u32 {
        self.0.active(index)
    }

    fn weight(&self, index: usize) -> u16 {
        self.0.weight(index)
    }

    fn usable_weight(&self) -> u32 {
        3
    }
}
