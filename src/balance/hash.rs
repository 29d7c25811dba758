//! The baseline of the hash policies: hash modulo the weight that is usable. One backend more or
//! less moves nearly every connection, which is what the others are measured against.

use super::View;

/// The backend that owns point `hash` mod Σ weights on the usable ones laid end to end.
pub(super) fn pick(view: &impl View, hash: u64) -> Option<usize> {
    let usable = || (0..view.len()).filter(|&index| view.usable(index));
    let total: u64 = usable().map(|index| u64::from(view.weight(index))).sum();
    let mut point = hash.checked_rem(total)?;
    let mut last = None;
    for index in usable() {
        let weight = u64::from(view.weight(index));
        if point < weight {
            return Some(index);
        }
        point -= weight;
        last = Some(index);
    }
    // A backend became unusable between the two passes.
    last
}
