//! How often a request that waits for many services meets a slow one (Dean and Barroso, "The Tail
//! at Scale", 2013): 1 − (1 − p)^M.

use crate::limits::SIMULATE_COUNT;

/// The chance that at least one of `fan_out` services is slow, each with chance `p` from 0 to 1,
/// independently.
pub fn chance(p: f64, fan_out: u32) -> f64 {
    if fan_out == 0 {
        return 0.0;
    }
    // Exact also where p is so small that 1 − p is 1.
    -(f64::from(fan_out) * (-p).ln_1p()).exp_m1()
}

/// The largest fan-out with a chance below `target`; `None` if it may be any, up to
/// [`SIMULATE_COUNT`].
pub fn largest_fan_out(p: f64, target: f64) -> Option<u32> {
    let below = |fan_out: u32| chance(p, fan_out) < target;
    if below(SIMULATE_COUNT) {
        return None;
    }
    // The chance rises with the fan-out.
    let (mut low, mut high) = (0, SIMULATE_COUNT);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if below(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    Some(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        for (p, fan_out, percent) in [
            (0.015, 40, 45.4),
            (0.002, 40, 7.7),
            (0.01, 100, 63.4),
            (0.5, 1, 50.0),
            (0.0, 40, 0.0),
            (1.0, 1, 100.0),
            (0.3, 0, 0.0),
        ] {
            let found = chance(p, fan_out) * 100.0;
            assert!((found - percent).abs() < 0.05, "{p} {fan_out}: {found}");
        }
        let tiny = chance(1e-18, 1_000_000);
        assert!((tiny / 1e-12 - 1.0).abs() < 1e-9, "{tiny}");
    }

    #[test]
    fn largest_below_a_target() {
        for (p, target, expected) in [
            (0.015, 0.05, Some(3)),
            (0.002, 0.05, Some(25)),
            (0.015, 0.01, Some(0)),
            (0.5, 0.5, Some(0)),
            (0.5, 0.75, Some(1)),
            (1.0, 1.0, Some(0)),
            (0.0, 0.05, None),
            (1e-15, 0.05, None),
        ] {
            assert_eq!(largest_fan_out(p, target), expected, "{p} {target}");
        }
        for p in [0.001, 0.01, 0.2] {
            let fan_out = largest_fan_out(p, 0.05).unwrap();
            assert!(chance(p, fan_out) < 0.05 && chance(p, fan_out + 1) >= 0.05, "{p}");
        }
    }
}
