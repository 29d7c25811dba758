use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn exact_ids_and_prefixes() {
    let now = Instant::now();
    let mut ids = Ids::new(10, now);
    let longest = [7; ID_MAX];
    for (id, value) in [(&[1][..], 'a'), (&[1, 2, 3], 'b'), (&longest, 'c'), (&[1, 0], 'd')] {
        ids.learn(id, value, now);
    }
    for (bytes, exact, prefix) in [
        (&[][..], None, None),
        (&[1], Some('a'), Some('a')),
        (&[1, 2], None, Some('a')),
        (&[1, 2, 3], Some('b'), Some('b')),
        (&[1, 2, 3, 4], None, Some('b')),
        // Zeros are no padding.
        (&[1, 0], Some('d'), Some('d')),
        (&[1, 0, 0], None, Some('d')),
        (&[2, 1, 2, 3], None, None),
        (&longest, Some('c'), Some('c')),
        (&[7; ID_MAX - 1], None, None),
        (&[7; ID_MAX + 1], None, Some('c')),
        (&[7; 1200], None, Some('c')),
    ] {
        assert_eq!(ids.find(bytes, now), exact, "{bytes:?}");
        assert_eq!(ids.find_prefix(bytes, now), prefix, "{bytes:?}");
    }
}

#[test]
fn no_ids() {
    let now = Instant::now();
    let mut ids = Ids::new(10, now);
    ids.learn(&[], 1, now);
    ids.learn(&[1; ID_MAX + 1], 1, now);
    ids.learn(&[1; 300], 1, now);
    assert!(ids.is_empty());
    let mut none = Ids::new(0, now);
    none.learn(&[1], 1, now);
    assert!(none.is_empty());
}

#[test]
fn learnt_again() {
    let now = Instant::now();
    let mut ids = Ids::new(10, now);
    ids.learn(&[1], 'a', now);
    ids.learn(&[1], 'b', now + SECOND);
    assert_eq!((ids.find(&[1], now), ids.len()), (Some('b'), 1));
    assert_eq!(ids.expire(now + SECOND, SECOND), 0);
}

#[test]
fn forgotten() {
    let now = Instant::now();
    let mut ids = Ids::new(2, now);
    for (id, value) in [([1, 2], 'a'), ([1, 3], 'b')] {
        ids.learn(&id, value, now);
    }
    for other in [&[][..], &[1], &[1, 2, 3], &[7; ID_MAX + 1]] {
        ids.forget(other);
    }
    assert_eq!(ids.len(), 2);
    ids.forget(&[1, 2]);
    ids.forget(&[1, 2]);
    assert_eq!((ids.find_prefix(&[1, 2], now), ids.len()), (None, 1));
    // Its place is free.
    ids.learn(&[1, 4], 'c', now);
    assert_eq!((ids.find(&[1, 3], now), ids.find(&[1, 4], now)), (Some('b'), Some('c')));
}

#[test]
fn expired_in_steps() {
    let now = Instant::now();
    let mut ids = Ids::new(1000, now);
    for n in 0..200u8 {
        ids.learn(&[n], n, now);
    }
    let later = now + SECOND;
    assert_eq!(ids.find(&[77], later), Some(77));
    let steps: Vec<usize> =
        std::iter::from_fn(|| Some(ids.expire(later, SECOND)).filter(|count| *count > 0)).collect();
    assert_eq!(steps, [64, 64, 64, 7]);
    assert_eq!((ids.len(), ids.find(&[77], later)), (1, Some(77)));
}

#[derive(Clone, Debug)]
enum Operation {
    Learn(Vec<u8>),
    Find(Vec<u8>),
    Prefix(Vec<u8>),
    Wait(u64),
    Expire(u64),
}

fn operation() -> impl Strategy<Value = Operation> {
    let id = || vec(0..2u8, 0..5);
    prop_oneof![
        4 => id().prop_map(Operation::Learn),
        2 => id().prop_map(Operation::Find),
        2 => vec(0..2u8, 0..7).prop_map(Operation::Prefix),
        2 => (0..4u64).prop_map(Operation::Wait),
        1 => (0..8u64).prop_map(Operation::Expire),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// As a list does that is searched, the longest unseen first.
    #[test]
    fn does_as_the_naive_model(operations in vec(operation(), 0..200), max in 0..12usize) {
        let mut now = Instant::now();
        let mut ids = Ids::new(max, now);
        let mut model: Vec<(Vec<u8>, u32, Instant)> = Vec::new();
        let find = |model: &mut Vec<(Vec<u8>, u32, Instant)>, id: &[u8], now| {
            let place = model.iter().position(|(known, _, _)| known == id)?;
            let (id, value, _) = model.remove(place);
            model.push((id, value, now));
            Some(value)
        };
        for (value, operation) in (0..).zip(operations) {
            match operation {
                Operation::Learn(id) => {
                    ids.learn(&id, value, now);
                    if find(&mut model, &id, now).is_some() {
                        model.pop();
                        model.push((id, value, now));
                    } else if !id.is_empty() && max > 0 {
                        model.drain(..(model.len() + 1).saturating_sub(max));
                        model.push((id, value, now));
                    }
                }
                Operation::Find(id) => {
                    prop_assert_eq!(ids.find(&id, now), find(&mut model, &id, now));
                }
                Operation::Prefix(bytes) => {
                    let mut lengths = (0..=bytes.len()).rev();
                    let expected = lengths.find_map(|end| find(&mut model, &bytes[..end], now));
                    prop_assert_eq!(ids.find_prefix(&bytes, now), expected);
                }
                Operation::Wait(seconds) => now += SECOND * seconds as u32,
                Operation::Expire(age) => {
                    let before = model.len();
                    model.retain(|(_, _, seen)| now - *seen < SECOND * age as u32);
                    let age = Duration::from_secs(age);
                    prop_assert_eq!(ids.expire(now, age), before - model.len());
                }
            }
            prop_assert_eq!(ids.len(), model.len());
        }
        while ids.expire(now, Duration::ZERO) > 0 {}
        prop_assert!(ids.is_empty() && ids.lengths == [0; ID_MAX + 1]);
    }
}
