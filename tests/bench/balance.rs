//! What a pick costs by policy, number of backends and threads that pick at once, and what the
//! tables of a pool cost: `cargo bench --bench balance`.
//!
//! `choose` is the policy's decision; `place` takes a place on the backend as well, and gives it
//! back. The first of `threads` picks alone.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use divan::{Bencher, black_box};
use pointsman::snapshot::Tried;
use pointsman::state::Registry;

use pools::{BALANCES, Case, Loaded, build_pool, configure};

mod pools;

const BACKENDS: &[usize] = &[10, 100, 1000, 10_000];

fn main() {
    divan::main();
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

/// Built once.
fn loaded(case: Case) -> Arc<Loaded> {
    static ALL: LazyLock<Mutex<HashMap<Case, Arc<Loaded>>>> = LazyLock::new(Mutex::default);
    let mut all = ALL.lock().expect("nobody has panicked");
    all.entry(case).or_insert_with(|| Arc::new(Loaded::new(case))).clone()
}

#[divan::bench(args = cases(), threads = [1, 2])]
fn choose(bencher: Bencher<'_, '_>, case: Case) {
    let loaded = loaded(case);
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
    let loaded = loaded(case);
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
