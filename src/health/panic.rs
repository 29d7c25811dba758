//! When a pool ignores the state of its backends: so few are left that the checks are more likely
//! to be wrong, or the rest about to be overrun, than all the others to be down.

use super::State;

/// Whether to pick as if every backend were up. `backends` are weights and states; one of weight
/// 0 never counts, and is never picked, in panic or not.
///
/// `threshold` in percent of the weight: panic below it, and at 0 only when nothing is up; `None`
/// is never. A backend that is ejected or has not been checked yet counts as not up.
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

#[cfg(test)]
mod tests {
    use super::State::{Down, Ejected, Unknown, Up};
    use super::*;

    #[test]
    fn decisions() {
        let check = |threshold, backends: &[(u16, State)], expected| {
            let decided = in_panic(threshold, backends.iter().copied());
            assert_eq!(decided, expected, "{threshold:?} {backends:?}");
        };
        check(Some(0), &[(1, Down), (1, Down)], true);
        check(Some(0), &[(1, Down), (1, Unknown)], true);
        check(Some(0), &[(1, Down), (1, Ejected)], true);
        check(Some(0), &[(256, Down), (1, Up)], false);
        check(None, &[(1, Down), (1, Down)], false);

        check(Some(50), &[(1, Up), (1, Down)], false);
        check(Some(50), &[(1, Up), (2, Down)], true);
        check(Some(50), &[(2, Up), (1, Down)], false);
        check(Some(34), &[(1, Up), (2, Down)], true);
        check(Some(33), &[(1, Up), (2, Down)], false);
        check(Some(1), &[(1, Down)], true);
        check(Some(100), &[(1, Up), (1, Up)], false);
        check(Some(100), &[(256, Up), (1, Down)], true);
    }

    #[test]
    fn weight_0_never_counts() {
        for threshold in [None, Some(0), Some(50), Some(100)] {
            assert!(!in_panic(threshold, []), "{threshold:?}");
            assert!(!in_panic(threshold, [(0, Down), (0, Up)]), "{threshold:?}");
        }
        assert!(in_panic(Some(0), [(0, Up), (1, Down)]));
        assert!(!in_panic(Some(100), [(0, Down), (1, Up)]));
    }
}
