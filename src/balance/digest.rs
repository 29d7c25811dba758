//! What the digest of a hash policy begins with: all that instances have to agree on, in a form
//! that no other configuration has.

use xxhash_rust::xxh64::Xxh64;

use super::key::KeyKind;
use super::{Bound, Member, Spec};

/// Policy, key, seed, bound and members. `None` for policies that do not hash.
pub(super) fn start(spec: &Spec, seed: u64, members: &[Member<'_>]) -> Option<Xxh64> {
    if !spec.policy.hashes() {
        return None;
    }
    let mut digest = Xxh64::new(0);
    digest.update(spec.policy.name().as_bytes());
    digest.update(&[0, tag(spec.key)]);
    digest.update(&seed.to_le_bytes());
    digest.update(&spec.bounded_load.map_or(0, Bound::thousandths).to_le_bytes());
    for member in members {
        // No address has a zero byte.
        digest.update(member.key.as_bytes());
        digest.update(&[0]);
        digest.update(&member.weight.to_le_bytes());
    }
    Some(digest)
}

/// Adds a table, many entries at a time: one by one takes longer than building it.
pub(super) fn add<T: Copy, const N: usize>(
    digest: &mut Xxh64,
    table: &[T],
    bytes: impl Fn(T) -> [u8; N],
) {
    let mut buffer = Vec::with_capacity(512 * N);
    for entries in table.chunks(512) {
        buffer.clear();
        buffer.extend(entries.iter().flat_map(|&entry| bytes(entry)));
        digest.update(&buffer);
    }
}

/// Never changes: other versions compute it too.
fn tag(key: KeyKind) -> u8 {
    match key {
        KeyKind::FiveTuple => 0,
        KeyKind::Source => 1,
        KeyKind::SourceNet => 2,
        KeyKind::Sni => 3,
    }
}
