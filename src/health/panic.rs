//! When a pool ignores the state of its backends: so few are left that the checks are more likely
//! to be wrong, or the rest about to be overrun, than all the others to be down.

use super::State;

/// Whether to pick as if every backend were up. `backends` are weights and states; one of weight
/// 0 never counts, and is never picked, in panic or not.
///
/// `threshold` in percent of the weight: panic below it, and at 0 only when nothing is up; `None`
/// is never. A backend that has not been checked yet counts as not up.
pub fn in_panic(threshold: Option<u8>, backends: impl IntoIterator<Item = (u16, State)>) -> bool {
    let Some(percent) = threshold else {
        return false;
    };
    let (mut up, mut total) = (0u64, 0u64);
    for (weight, state) in backends {
        total += u64::from(weight);
        if state == State::Up {
            up += u64::from(weight);
        }
    }
    // With no weight at all there is nothing that ignoring states could bring back.
    total > 0 && (up == 0 || up * 100 < total * u64::from(percent))
}
