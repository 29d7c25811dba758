//! The retry budget of a pool: attempts beyond the first, of all its connections together.
//!
//! Retries hide that one backend fails; when all do, they multiply the load that keeps them from
//! recovering. So each connection earns a share of a retry, and what was not earned is not spent
//! (Finagle's `RetryBudget`; Google SRE book, "Handling Overload").
//!
//! How full is full decides what a dying pool is spared. Here that is what the last 5 s have
//! earned, and 100 at least:
//!
//! - With every backend failing, no 10 s see more retries than the full budget and the earnings of
//!   10 s: at 20 % those are 30 % of the connections. A full budget of 1,000 connections/s is spent
//!   within 1.3 s even where each connection asks for one retry only; from then on each makes
//!   1.2 attempts.
//! - With one of two backends dead, half of all connections need one retry each. Refusals eject
//!   it after three. If it drops packets, half of a connect timeout's connections are under way
//!   to it before the first failure is known: at 20 % the full budget holds for those of 2 s.
//! - A pool that just started has earned nothing, and begins with the 100. That is enough for
//!   refusals at any rate; for dropped packets, at the default timeout of 1 s, up to 500
//!   connections/s.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Hundredths of a token: with `retry_budget: P`, a connection earns P of them; and at
/// [`FLOOR_PER_SECOND`], a millisecond earns one.
const TOKEN: u64 = 100;

/// Retries a second that are always allowed.
pub const FLOOR_PER_SECOND: u64 = 10;

/// What the floor earns in 10 s, where it stops: a full budget without any connections.
pub const FLOOR_TOKENS: u64 = 10 * FLOOR_PER_SECOND;

/// What is above the floor is gone after this long, by and by.
const MEMORY_MS: u64 = 5_000;

/// The rest of the word is milliseconds: enough for 34 years.
const TOKEN_BITS: u32 = 24;
const MOST: u64 = (1 << TOKEN_BITS) - 1;

const _: () = assert!(FLOOR_PER_SECOND * TOKEN == 1000, "one unit a millisecond");

/// A token bucket shared by all workers: one word, tokens and when they were last counted up.
///
/// It earns `percent` tokens for 100 connections or [`FLOOR_PER_SECOND`] a second, whichever is
/// more at the moment. What it holds above [`FLOOR_TOKENS`] leaks by a 5,000th each millisecond,
/// so that it comes to hold the earnings of 5 s (rounding costs up to 50 tokens) at any rate of
/// connections, with no need to know the rate. It holds 167,772 at the most.
///
/// `now` is the time since some fixed moment, the same one in every call. Workers that read the
/// clock in one order and come here in the other lose nothing but that difference.
#[derive(Debug)]
pub struct RetryBudget(AtomicU64);

impl RetryBudget {
    /// Full, for a pool that has had no connections: [`FLOOR_TOKENS`].
    pub fn new(now: Duration) -> Self {
        RetryBudget(AtomicU64::new(
            Bucket { counted: ms(now), tokens: FLOOR_TOKENS * TOKEN }.pack(),
        ))
    }

    /// Earns the share of one new connection, in percent of a token.
    pub fn earn(&self, now: Duration, percent: u8) {
        let earned = |word| Some(Bucket::unpack(word).earn(ms(now), u64::from(percent)).pack());
        let _never_refused = self.0.fetch_update(Relaxed, Relaxed, earned);
    }

    /// Spends a token on a retry or a hedge; false if there is none: then it must not be made.
    pub fn spend(&self, now: Duration) -> bool {
        let spent = |word| {
            let mut bucket = Bucket::unpack(word).earn(ms(now), 0);
            bucket.tokens = bucket.tokens.checked_sub(TOKEN)?;
            Some(bucket.pack())
        };
        self.0.fetch_update(Relaxed, Relaxed, spent).is_ok()
    }

    /// Whole tokens left, as last counted.
    pub fn tokens(&self) -> u64 {
        Bucket::unpack(self.0.load(Relaxed)).tokens / TOKEN
    }
}

/// The word, taken apart.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// Milliseconds; of the latest call.
    counted: u64,
    /// Hundredths.
    tokens: u64,
}

impl Bucket {
    fn earn(self, now: u64, share: u64) -> Self {
        let elapsed = now.saturating_sub(self.counted);
        let floor = FLOOR_TOKENS * TOKEN;
        let surplus = self.tokens.saturating_sub(floor);
        // Rounded up: else a small surplus would never go.
        let leak = (surplus * elapsed.min(MEMORY_MS)).div_ceil(MEMORY_MS);
        let kept = self.tokens - leak;
        let earned = share.max(elapsed.min(floor.saturating_sub(kept)));
        Bucket { counted: self.counted.max(now), tokens: (kept + earned).min(MOST) }
    }

    fn pack(self) -> u64 {
        self.counted << TOKEN_BITS | self.tokens
    }

    fn unpack(word: u64) -> Self {
        Bucket { counted: word >> TOKEN_BITS, tokens: word & MOST }
    }
}

fn ms(now: Duration) -> u64 {
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX).min(u64::MAX >> TOKEN_BITS)
}

#[cfg(test)]
mod tests;
