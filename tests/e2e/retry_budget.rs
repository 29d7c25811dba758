//! Retries are no storm: when every backend refuses, a busy pool makes 1.2 attempts a connection
//! at the default of 20 %, once what it had saved is spent.

use std::time::{Duration, Instant};

use crate::harness::{Hideable, Pointsman, Record, Stream, one_listener, pass};

const THREADS: u32 = 4;
/// Connections a second, of all threads.
const RATE: u32 = 1000;

/// Opens connections at that rate and waits for the end of each.
fn arrive(edge: &str, lasts: Duration) {
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                for number in 0.. {
                    let due = Duration::from_secs(1) * (number * THREADS + thread) / RATE;
                    if due >= lasts {
                        break;
                    }
                    pass(due.saturating_sub(begun.elapsed()));
                    let mut client = Stream::connect(edge);
                    client.finish();
                    client.expect_end();
                }
            });
        }
    });
}

fn attempts(records: &[Record]) -> f64 {
    let attempts: usize = records.iter().map(|record| record.attempts().len()).sum();
    attempts as f64 / records.len() as f64
}

#[test]
fn a_pool_that_refuses_is_not_stormed() {
    let backends = [Hideable::shown(), Hideable::shown(), Hideable::shown()];
    let addresses = backends.each_ref().map(Hideable::address);
    let list = addresses.each_ref().map(String::as_str);
    // With detection two of three would be ejected.
    let pointsman = Pointsman::start(&one_listener("", &list, "outlier: off"));
    let edge = pointsman.address("edge");
    let second = Duration::from_secs(1);
    arrive(&edge, second);
    backends.iter().for_each(Hideable::hide);
    let before = pointsman.wait_idle();
    let begun = Instant::now();
    arrive(&edge, 3 * second);
    let rate = 3.0 * f64::from(RATE) / begun.elapsed().as_secs_f64();
    assert!(rate > 0.7 * f64::from(RATE), "a rate of {rate} is not what this is about");
    let exhausted = |metrics: &crate::harness::Metrics| {
        metrics.value("pointsman_pool_budget_exhausted_total", &[("pool", "pool")])
    };
    let metrics = pointsman.wait_idle();
    assert!(exhausted(&before) == 0.0 && exhausted(&metrics) > 1000.0);
    let mut records = pointsman.stop();
    records.sort_by(|a, b| a.text("time").cmp(b.text("time")));
    // Those of the healthy second come first.
    let refused = &records[RATE as usize..];
    assert_eq!(refused.len(), 3 * RATE as usize);
    assert!(refused.iter().all(|record| record.text("termination") == "connect_failed"));
    let (first, rest) = refused.split_at(RATE as usize);
    let (first, rest) = (attempts(first), attempts(rest));
    eprintln!("{rate:.0}/s: {first:.3} attempts in the first second, then {rest:.3}");
    // What had been saved is for the first moments.
    assert!(first > rest + 0.05, "{first} {rest}");
    assert!((1.15..=1.3).contains(&rest), "{rest}");
}
