//! Digests: equal where keys are picked for alike, and nowhere else.

use std::collections::BTreeSet;

use super::*;
use crate::balance::key::KeyKind;

fn digest(spec: &Spec, seed: u64, keys: &[String], weights: &[u16]) -> Option<u64> {
    let members: Vec<_> =
        keys.iter().zip(weights).map(|(key, &weight)| Member { key, weight }).collect();
    Policy::new(spec, &members).unwrap().digest(spec, seed, &members)
}

#[test]
fn everything_counts() {
    let mut all = BTreeSet::new();
    let hashes = PolicyKind::ALL.into_iter().filter(|kind| kind.hashes());
    for kind in hashes.clone() {
        let plain = spec(kind);
        let bound = Spec { bounded_load: Bound::new(1250), ..plain };
        let looser = Spec { bounded_load: Bound::new(1500), ..plain };
        let source = Spec { key: KeyKind::Source, ..plain };
        let (three, four) = (keys(3), keys(4));
        for (spec, seed, keys, weights) in [
            (plain, 0, &three[..], &[1, 1, 1][..]),
            (plain, 1, &three, &[1, 1, 1]),
            (bound, 0, &three, &[1, 1, 1]),
            (looser, 0, &three, &[1, 1, 1]),
            (source, 0, &three, &[1, 1, 1]),
            (plain, 0, &three, &[1, 1, 2]),
            (plain, 0, &three, &[2, 1, 1]),
            (plain, 0, &three[..2], &[1, 1]),
            (plain, 0, &four[1..], &[1, 1, 1]),
        ] {
            let first = digest(&spec, seed, keys, weights).unwrap();
            assert_eq!(digest(&spec, seed, keys, weights), Some(first), "{kind}");
            assert!(first < 1 << 48, "{kind}");
            assert!(all.insert(first), "{kind}: twice the same");
        }
    }
    let small = Spec { table_size: 7, ..spec(PolicyKind::Maglev) };
    assert!(all.insert(digest(&small, 0, &keys(3), &[1; 3]).unwrap()));
    assert_eq!(all.len(), 9 * hashes.count() + 1);
}

#[test]
fn without_a_hash_there_is_none() {
    for kind in PolicyKind::ALL.into_iter().filter(|kind| !kind.hashes()) {
        assert_eq!(digest(&spec(kind), 0, &keys(2), &[1; 2]), None, "{kind}");
    }
}

/// Instances of other versions agree: these never change. Expected values: XXH64 and the tables
/// written out in python.
#[test]
fn known_digests() {
    let known = [
        (PolicyKind::Hash, 0xc8b7_ad33_fc21),
        (PolicyKind::Ring, 0xcd19_4ac2_5c85),
        (PolicyKind::Rendezvous, 0xd8ac_c896_97c0),
        (PolicyKind::Maglev, 0x0079_5666_73c2),
    ];
    for (kind, expected) in known {
        let found = digest(&spec(kind), 7, &keys(3), &[1, 2, 3]).unwrap();
        assert_eq!(found, expected, "{kind}: {found:#014x}");
    }
}
