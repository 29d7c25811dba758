//! A backend that fails fast is idle, and idle is what `least_conn` looks for: without detection it
//! draws nearly every connection to itself.

use std::io::Read;

use crate::harness::{Backend, Instance, Load, Metrics, Pointsman, one_listener};

const CLIENTS: usize = 16;
const ANSWERS: usize = 2000;

/// Load on a pool of two instances and `bad`: what the clients lost, and the last scrape.
fn load(bad: &Backend, keys: &str) -> (usize, Metrics) {
    let good = [Instance::start(), Instance::start()];
    let backends = [good[0].address(), good[1].address(), bad.address()];
    let yaml = one_listener("", &backends.each_ref().map(String::as_str), keys);
    let pointsman = Pointsman::start(&yaml);
    let load = Load::start(&pointsman.address("edge"), CLIENTS, 0);
    load.wait_for(ANSWERS);
    let (_, failures) = load.stop();
    let metrics = pointsman.wait_idle();
    pointsman.stop();
    (failures.len(), metrics)
}

fn attempts(metrics: &Metrics, bad: &Backend) -> f64 {
    let (address, mut sum) = (bad.address(), 0.0);
    for (name, reason) in [
        ("pointsman_backend_connections_total", None),
        ("pointsman_backend_connect_failures_total", Some(("reason", "refused"))),
    ] {
        let labels = [("pool", "pool"), ("backend", &*address)];
        sum += metrics.value(name, &labels.into_iter().chain(reason).collect::<Vec<_>>());
    }
    sum
}

/// Three failures eject it; what was under way to it meanwhile comes to them.
const FEW: f64 = 3.0 + CLIENTS as f64;

#[test]
fn a_backend_that_refuses_draws_nobody() {
    let bad = Backend::refusing();
    let (failed, metrics) = load(&bad, "balance: least_conn");
    assert_eq!(failed, 0);
    let count = attempts(&metrics, &bad);
    assert!((3.0..=FEW).contains(&count), "{count}");

    // The test's own check: it is the ejection that does it.
    let keys = "balance: least_conn, outlier: off, connect: { retry_budget: off }";
    let (failed, metrics) = load(&bad, keys);
    let count = attempts(&metrics, &bad);
    assert!(failed == 0 && count > 0.5 * ANSWERS as f64, "{failed} {count}");
}

/// One that accepts and closes is noticed where the operator allows it.
#[test]
fn a_backend_that_hangs_up_draws_nobody() {
    let bad = Backend::serving(|stream| {
        // The request is read, so that the end is FIN.
        let _gone = (&**stream.socket()).read(&mut [0]);
    });
    let keys = "balance: least_conn, outlier: { early_close: true }";
    let (failed, metrics) = load(&bad, keys);
    let count = attempts(&metrics, &bad);
    // What it was sent is lost.
    assert!((3.0..=FEW).contains(&count) && failed as f64 <= count, "{failed} {count}");
}

/// Retries of `round_robin` take no turns: they would push the first picks back onto the backend
/// that fails, and with the retry budget spent nobody would reach the good one.
#[test]
fn retries_leave_the_turns_alone() {
    let (good, bad) = (Backend::echo(), Backend::refusing());
    let keys = "balance: round_robin, outlier: off, connect: { retry_budget: 0 }";
    let list = [&*good.address(), &*bad.address()];
    let pointsman = Pointsman::start(&one_listener("", &list, keys));
    let clients = 1000;
    let served = (0..clients).filter(|_| pointsman.echoes()).count();
    // Half of the first picks, and what the floor of the budget lets retry.
    assert!(served >= clients / 2, "{served} of {clients}");
}
