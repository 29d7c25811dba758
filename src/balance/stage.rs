//! In what order a pick looks at the backends of a pool, and whom it passes over while they warm
//! up.

/// The pull of a backend that gets its full share; less while it warms up.
pub const FULL_PULL: u8 = 100;

/// Which backends a pick looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stage {
    /// The backups, and no others.
    pub backups: bool,
    /// Those that warm up are passed over by a share of the connections.
    pub warms: bool,
    /// Whatever their state.
    pub panic: bool,
}

const ORDER: [Stage; 4] = [
    Stage { backups: false, warms: true, panic: false },
    Stage::PLAIN,
    Stage { backups: true, warms: true, panic: false },
    Stage { backups: true, warms: false, panic: false },
];

const PANIC: [Stage; 2] = [
    Stage { backups: false, warms: false, panic: true },
    Stage { backups: true, warms: false, panic: true },
];

impl Stage {
    /// The first where nobody warms up, and the only one where besides there is no trouble.
    pub const PLAIN: Stage = Stage { backups: false, warms: false, panic: false };

    /// The stages of a pick, each for when the one before has found nothing. `warming` says
    /// whether any backend warms up that is to be passed over, which it is only while there are
    /// others; never where picks go by load, in which its pull is counted already.
    pub fn order(panic: bool, warming: bool) -> impl Iterator<Item = Stage> {
        let stages = if panic { &PANIC[..] } else { &ORDER[..] };
        stages.iter().copied().filter(move |stage| warming || !stage.warms)
    }

    /// Whether a backend with this pull, 1 to [`FULL_PULL`], is passed over by a connection. `salt`
    /// is the connection's hash where the policy hashes: a key comes to a backend once, when that
    /// is warm enough for it, and stays. Elsewhere it is any number, another for each pick.
    pub fn passes_over(self, salt: u64, index: usize, pull: u8) -> bool {
        self.warms && pull != FULL_PULL && !is_warm_for(salt, index, pull)
    }
}

/// So it is for `pull` in [`FULL_PULL`] of all salts.
fn is_warm_for(salt: u64, index: usize, pull: u8) -> bool {
    let mixed = (salt ^ index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    ((mixed >> 32) * u64::from(FULL_PULL)) >> 32 < u64::from(pull)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order() {
        let told = |panic, warming| {
            let letters = Stage::order(panic, warming).map(|stage| {
                let place = if stage.backups { 'b' } else { 'a' };
                match (stage.warms, stage.panic) {
                    (true, _) => format!("{place}~"),
                    (false, true) => format!("{place}!"),
                    (false, false) => format!("{place}"),
                }
            });
            letters.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(told(false, false), "a b");
        assert_eq!(told(false, true), "a~ a b~ b");
        assert_eq!(told(true, true), "a! b!");
    }

    /// By its share, and the same keys at every later step.
    #[test]
    fn keys_stay_with_who_has_warmed_up() {
        let stage = Stage { warms: true, ..Stage::PLAIN };
        let mut rng = fastrand::Rng::with_seed(6);
        let salts: Vec<u64> = (0..10_000).map(|_| rng.u64(..)).collect();
        let mut before: Vec<u64> = Vec::new();
        for pull in (10..=FULL_PULL).step_by(10) {
            let taken: Vec<u64> =
                salts.iter().copied().filter(|&salt| !stage.passes_over(salt, 3, pull)).collect();
            // Five standard deviations of 10,000.
            assert!(taken.len().abs_diff(usize::from(pull) * 100) <= 250, "{pull}");
            assert!(before.iter().all(|salt| taken.contains(salt)), "{pull}");
            before = taken;
        }
        assert!(!Stage::PLAIN.passes_over(0, 0, 1), "nobody else is left");
    }
}
