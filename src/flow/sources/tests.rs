use std::collections::HashMap;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const PREFIXES: Prefixes = Prefixes { v4: 24, v6: 56 };
const SECOND: Duration = Duration::from_secs(1);

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn sources(flows: Option<u32>, rate: Option<u32>, max: usize) -> (Sources, Instant) {
    let now = Instant::now();
    (Sources::new(PREFIXES, Limits { flows, rate }, max, now), now)
}

#[test]
fn prefixes() {
    let of = |v4, v6, text| Prefixes { v4, v6 }.source(address(text)).to_string();
    for (v4, v6, text, expected) in [
        (32, 128, "192.0.2.77", "192.0.2.77"),
        (24, 128, "192.0.2.77", "192.0.2.0"),
        (0, 128, "192.0.2.77", "0.0.0.0"),
        (24, 0, "::ffff:192.0.2.77", "192.0.2.0"),
        (99, 255, "192.0.2.77", "192.0.2.77"),
        (32, 56, "2001:db8:1:2ff::1", "2001:db8:1:200::"),
        (32, 128, "2001:db8::1", "2001:db8::1"),
        (32, 255, "2001:db8::1", "2001:db8::1"),
        (32, 0, "2001:db8::1", "::"),
    ] {
        assert_eq!(of(v4, v6, text), expected, "{v4} {v6} {text}");
    }
}

#[test]
fn flows_of_one_prefix_count_together() {
    let (mut sources, now) = sources(Some(2), None, 10);
    let [one, neighbour, other] = ["192.0.2.1", "::ffff:192.0.2.2", "192.0.3.1"].map(address);
    assert!(sources.open_flow(one, now) && sources.open_flow(neighbour, now));
    assert!(!sources.open_flow(one, now));
    assert!(sources.open_flow(other, now));
    assert_eq!([one, neighbour, other].map(|source| sources.flows(source)), [2, 2, 1]);
    sources.close_flow(neighbour);
    assert!(sources.open_flow(neighbour, now));
    for source in [one, one, one, other, other] {
        sources.close_flow(source);
    }
    assert!(sources.is_empty());
}

#[test]
fn a_source_sends_at_its_rate() {
    let (mut sources, start) = sources(None, Some(3), 10);
    let source = address("192.0.2.1");
    let mut passed = |now| (0..10).filter(|_| sources.admit_datagram(source, now)).count();
    assert_eq!(passed(start), 3);
    // A third of a second does not come out even in nanoseconds: 333,333,333 are too few.
    for (ns, expected) in [
        (333_333_333, 0),
        (333_333_334, 1),
        (666_666_666, 0),
        (666_666_667, 1),
        (1_000_000_000, 1),
        (1_999_999_999, 2),
        (2_000_000_000, 1),
        (10_000_000_000, 3),
        // Read before the last one.
        (9_000_000_000, 0),
    ] {
        assert_eq!(passed(start + Duration::from_nanos(ns)), expected, "{ns}");
    }
}

#[test]
fn extreme_limits() {
    let source = address("192.0.2.1");
    let (mut none, now) = sources(Some(0), Some(0), 10);
    assert!(!none.open_flow(source, now) && !none.admit_datagram(source, now + SECOND));
    assert!(none.is_empty());
    let (mut any, now) = sources(Some(u32::MAX), Some(u32::MAX), 10);
    let far = now + SECOND * (1 << 31);
    for now in [now, now, far, far] {
        assert!(any.open_flow(source, now) && any.admit_datagram(source, now));
    }
    let (mut closed, now) = sources(None, None, 0);
    assert!(!closed.open_flow(source, now) && closed.admit_datagram(source, now));
}

#[test]
fn limits_change() {
    let (mut sources, start) = sources(Some(2), Some(1000), 10);
    let source = address("192.0.2.1");
    let passed = |sources: &mut Sources, now| {
        (0..2000).filter(|_| sources.admit_datagram(source, now)).count()
    };
    assert!(sources.open_flow(source, start) && sources.open_flow(source, start));
    assert_eq!(passed(&mut sources, start), 1000);
    sources.set_limits(Limits { flows: Some(1), rate: Some(2) });
    assert!(!sources.open_flow(source, start));
    assert_eq!(passed(&mut sources, start), 0);
    // What is missing is never more than what the new rate makes good in a second.
    assert_eq!(passed(&mut sources, start + SECOND), 2);
    sources.close_flow(source);
    assert!(!sources.open_flow(source, start));
    sources.set_limits(Limits::default());
    assert_eq!(passed(&mut sources, start + SECOND), 2000);
    sources.close_flow(source);
    assert!(sources.is_empty());
}

#[test]
fn the_longest_silent_without_flows_makes_room() {
    let (mut sources, now) = sources(Some(1), Some(1), 3);
    let [a, b, c, d, e] = [1, 2, 3, 4, 5].map(|n| IpAddr::from([192, 0, n, 1]));
    assert!(sources.open_flow(a, now));
    assert!([a, b, c].into_iter().all(|source| sources.admit_datagram(source, now)));
    assert!(!sources.admit_datagram(b, now));
    // `c` is forgotten for `d`: it may send again, and `b` is forgotten for it.
    assert!(sources.admit_datagram(d, now));
    assert!(sources.admit_datagram(c, now));
    assert!(!sources.admit_datagram(d, now) && !sources.admit_datagram(a, now));
    // With flows everywhere nobody new gets in, and nobody's count is lost.
    assert!(sources.open_flow(c, now) && sources.open_flow(d, now));
    assert!(!sources.open_flow(e, now) && !sources.admit_datagram(e, now));
    assert_eq!([a, c, d, e].map(|source| sources.flows(source)), [1, 1, 1, 0]);
    assert!(!sources.open_flow(a, now));
    sources.close_flow(c);
    assert!(sources.open_flow(e, now));
    assert_eq!(sources.len(), 3);
}

#[derive(Clone, Debug)]
enum Operation {
    Admit(u8),
    Open(u8),
    Close(u8),
    Wait(u32),
    Expire,
}

fn operation() -> impl Strategy<Value = Operation> {
    let source = 0..6u8;
    prop_oneof![
        4 => source.clone().prop_map(Operation::Admit),
        2 => source.clone().prop_map(Operation::Open),
        2 => source.prop_map(Operation::Close),
        2 => (0..700_000_000u32).prop_map(Operation::Wait),
        1 => Just(Operation::Expire),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// With room for every source: exactly as many as a plain count, and no window with more than
    /// the rate allows, nor a refusal without one that is full.
    #[test]
    fn counts_and_windows(
        operations in vec(operation(), 0..200),
        limit in 0..4u32,
        rate in 0..5u32,
    ) {
        let (mut sources, start) = sources(Some(limit), Some(rate), 100);
        let mut now = start;
        let mut open = HashMap::<u8, u32>::new();
        let mut passed = HashMap::<u8, Vec<Instant>>::new();
        for operation in operations {
            match operation {
                Operation::Admit(n) => {
                    let passed = passed.entry(n).or_default();
                    passed.push(now);
                    // In integers: a datagram is 10^9, and a nanosecond is worth `rate`.
                    let allowed = |(before, from): (usize, &Instant)| {
                        let window = (now - *from).as_nanos() * u128::from(rate);
                        (passed.len() - before) as u128 * 1_000_000_000
                            <= window + u128::from(rate) * 1_000_000_000
                    };
                    let expected = passed.iter().enumerate().all(allowed);
                    prop_assert_eq!(sources.admit_datagram(IpAddr::from([10, 0, n, 1]), now), expected);
                    if !expected {
                        passed.pop();
                    }
                }
                Operation::Open(n) => {
                    let open = open.entry(n).or_default();
                    let opened = sources.open_flow(IpAddr::from([10, 0, n, 2]), now);
                    prop_assert_eq!(opened, *open < limit);
                    *open += u32::from(opened);
                }
                Operation::Close(n) => {
                    let open = open.entry(n).or_default();
                    *open = open.saturating_sub(1);
                    sources.close_flow(IpAddr::from([10, 0, n, 3]));
                }
                Operation::Wait(ns) => now += Duration::from_nanos(ns.into()),
                Operation::Expire => {
                    sources.expire(now);
                }
            }
            for (n, open) in &open {
                prop_assert_eq!(sources.flows(IpAddr::from([10, 0, *n, 4])), *open);
            }
        }
        for (n, open) in open {
            (0..open).for_each(|_| sources.close_flow(IpAddr::from([10, 0, n, 4])));
        }
        sources.expire(now + SECOND);
        prop_assert!(sources.is_empty());
    }

    /// With room for two: no more are kept, and none of those with flows is forgotten.
    #[test]
    fn bounds_without_room(operations in vec(operation(), 0..200)) {
        let (mut sources, mut now) = sources(Some(2), Some(2), 2);
        let mut open = [0u32; 6];
        for operation in operations {
            match operation {
                Operation::Admit(n) => {
                    sources.admit_datagram(IpAddr::from([10, 0, n, 1]), now);
                }
                Operation::Open(n) => {
                    let others = (0..6).filter(|other| *other != n);
                    let taken = others.filter(|other| open[usize::from(*other)] > 0).count();
                    let open = &mut open[usize::from(n)];
                    let opened = sources.open_flow(IpAddr::from([10, 0, n, 1]), now);
                    prop_assert_eq!(opened, *open < 2 && taken < 2);
                    *open += u32::from(opened);
                }
                Operation::Close(n) => {
                    let open = &mut open[usize::from(n)];
                    *open = open.saturating_sub(1);
                    sources.close_flow(IpAddr::from([10, 0, n, 1]));
                }
                Operation::Wait(ns) => now += Duration::from_nanos(ns.into()),
                Operation::Expire => {
                    sources.expire(now);
                }
            }
            prop_assert!(sources.len() <= 2);
            for (n, open) in (0..).zip(open) {
                prop_assert_eq!(sources.flows(IpAddr::from([10, 0, n, 1])), open);
            }
        }
    }
}
