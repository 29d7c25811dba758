//! The less loaded of two random distinct backends (Mitzenmacher, "The Power of Two Choices in
//! Randomized Load Balancing", 2001).
//!
//! Both are drawn by weight: drawn evenly, a backend could never get more than two in n of the
//! connections, whatever its weight.

use std::cmp::Ordering;

use super::random::Random;
use super::{View, by_load};

/// Draws twice; the only usable backend stands alone, and of equals the first draw stays.
pub(super) fn pick(random: &Random, view: &impl View, rng: &mut fastrand::Rng) -> Option<usize> {
    let first = random.pick(view, rng)?;
    let Some(second) = random.pick_where(view, rng, |index| index != first) else {
        return Some(first);
    };
    let load = |index| (view.active(index), view.weight(index));
    match by_load(load(second), load(first)) {
        Ordering::Less => Some(second),
        Ordering::Equal | Ordering::Greater => Some(first),
    }
}
