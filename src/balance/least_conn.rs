//! The usable backend with the least load for its weight, of all.

use std::cmp::Ordering;

use super::{View, by_load};

/// Looks at every backend once. Equals are counted as they come, and the n-th takes the place of
/// the choice so far one time in n, so that each is chosen alike: were it always the first, an
/// idle pool would send everything there.
pub(super) fn pick(view: &impl View, rng: &mut fastrand::Rng) -> Option<usize> {
    let mut best: Option<(usize, (u32, u16))> = None;
    let mut equals = 0;
    for index in (0..view.len()).filter(|&index| view.usable(index)) {
        let load = (view.active(index), view.weight(index));
        match best.map_or(Ordering::Less, |(_, least)| by_load(load, least)) {
            Ordering::Less => {
                best = Some((index, load));
                equals = 1;
            }
            Ordering::Equal => {
                equals += 1;
                if rng.u32(..equals) == 0 {
                    best = Some((index, load));
                }
            }
            Ordering::Greater => {}
        }
    }
    best.map(|(index, _)| index)
}
