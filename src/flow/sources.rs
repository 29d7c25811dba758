//! What each source may have open and send.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Instant;

use super::clock::Clock;
use super::index::{Index, Keyed};
use super::list::{Linked, Links, List};
use super::slots::Slots;
use crate::limits::FORGET_BATCH;

/// Entries that a call looks at to forget them: more than it can add.
const FORGOTTEN: usize = 2;

/// What makes addresses one source: as many leading bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefixes {
    /// Of IPv4, also where it comes mapped into IPv6; 32 at most.
    pub v4: u8,
    /// Of IPv6; 128 at most.
    pub v6: u8,
}

/// What each source may; `None`: anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Flows open at a time.
    pub flows: Option<u32>,
    /// Datagrams a second, and as many at once after a silence.
    pub rate: Option<u32>,
}

/// Flows and datagrams by source, for at most `max` sources. One owner; for several threads shard
/// by [`Prefixes::source`] and lock.
///
/// A source is remembered while it has flows or has lately sent. For a new one, the longest silent
/// without flows is forgotten: so with more than `max` sources a second, some are not held to
/// their rate. If all of them have flows, the new one is turned away until one has none left. That
/// is what bounds the memory, and no source with flows gets away from its limit.
#[derive(Debug)]
pub struct Sources {
    prefixes: Prefixes,
    limits: Limits,
    max: usize,
    clock: Clock,
    slots: Slots<Source>,
    index: Index,
    /// Those without flows.
    idle: List,
}

#[derive(Debug)]
struct Source {
    /// IPv4 is mapped into IPv6. No prefix of another IPv6 address looks like that.
    prefix: Ipv6Addr,
    links: Links,
    flows: u32,
    /// Whether it is in the list of those without flows.
    idle: bool,
    bucket: Bucket,
}

impl Prefixes {
    /// The first address of the source that `address` belongs to.
    pub fn source(&self, address: IpAddr) -> IpAddr {
        match address.to_canonical() {
            IpAddr::V4(ip) => {
                let mask = u32::MAX.checked_shr(self.v4.into()).unwrap_or(0);
                Ipv4Addr::from_bits(ip.to_bits() & !mask).into()
            }
            IpAddr::V6(ip) => {
                let mask = u128::MAX.checked_shr(self.v6.into()).unwrap_or(0);
                Ipv6Addr::from_bits(ip.to_bits() & !mask).into()
            }
        }
    }
}

impl Sources {
    /// Remembers `max` sources at most. What a source is never changes: flows are counted where
    /// they were opened.
    pub fn new(prefixes: Prefixes, limits: Limits, max: usize, now: Instant) -> Self {
        Sources {
            prefixes,
            limits,
            max,
            clock: Clock::new(now),
            slots: Slots::default(),
            index: Index::default(),
            idle: List::default(),
        }
    }

    /// Other limits from now on. Flows beyond them stay.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// How many sources are remembered.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The flows that the source of this address has open.
    pub fn flows(&self, address: IpAddr) -> u32 {
        let number = self.index.find(&self.slots, &self.prefix(address));
        number.and_then(|number| self.slots.get(number)).map_or(0, |source| source.flows)
    }

    /// Counts a datagram; false if it is beyond the rate: then it must go no further.
    pub fn admit_datagram(&mut self, address: IpAddr, now: Instant) -> bool {
        let now = self.clock.advance(now);
        let Some(rate) = self.limits.rate else { return true };
        let source = self.enter(address).and_then(|number| self.slots.get_mut(number));
        let admitted = source.is_some_and(|source| source.bucket.take(rate, now));
        self.forget(now, FORGOTTEN);
        admitted
    }

    /// Counts a flow, which [`Sources::close_flow`] has to be told the end of; false if it is one
    /// too many: then it must not be opened.
    pub fn open_flow(&mut self, address: IpAddr, now: Instant) -> bool {
        let now = self.clock.advance(now);
        let most = self.limits.flows.unwrap_or(u32::MAX);
        let opened = self.enter(address).is_some_and(|number| self.open(number, most));
        self.forget(now, FORGOTTEN);
        opened
    }

    /// A flow from this address has ended.
    pub fn close_flow(&mut self, address: IpAddr) {
        let Some(number) = self.index.find(&self.slots, &self.prefix(address)) else { return };
        let Some(source) = self.slots.get_mut(number).filter(|source| source.flows > 0) else {
            return;
        };
        source.flows -= 1;
        if source.flows > 0 {
            return;
        }
        source.idle = true;
        let silent = source.bucket.is_full(self.limits.rate, self.clock.latest());
        self.idle.push_back(&mut self.slots, number);
        if silent {
            self.remove(number);
        }
    }

    /// Forgets sources that have no flows and could send all they may at once, [`FORGET_BATCH`] at
    /// most, and says how many; to be called again if there were any. Other calls forget some too.
    pub fn expire(&mut self, now: Instant) -> usize {
        let now = self.clock.advance(now);
        self.forget(now, FORGET_BATCH)
    }

    /// The entry of a source, made if there is room for it.
    fn enter(&mut self, address: IpAddr) -> Option<u32> {
        let prefix = self.prefix(address);
        if let Some(number) = self.index.find(&self.slots, &prefix) {
            if self.slots.get(number).is_some_and(|source| source.idle) {
                self.idle.move_to_back(&mut self.slots, number);
            }
            return Some(number);
        }
        if self.len() >= self.max {
            self.remove(self.idle.front()?);
        }
        let bucket = Bucket::default();
        let source = Source { prefix, links: Links::default(), flows: 0, idle: true, bucket };
        let number = self.slots.insert(source);
        self.index.insert(&self.slots, number);
        self.idle.push_back(&mut self.slots, number);
        Some(number)
    }

    fn open(&mut self, number: u32, most: u32) -> bool {
        let Some(source) = self.slots.get_mut(number).filter(|source| source.flows < most) else {
            return false;
        };
        source.flows += 1;
        if source.idle {
            source.idle = false;
            self.idle.unlink(&mut self.slots, number);
        }
        true
    }

    fn forget(&mut self, now: u64, most: usize) -> usize {
        let rate = self.limits.rate;
        for count in 0..most {
            let Some(number) = self.idle.front() else { return count };
            if !self.slots.get(number).is_some_and(|source| source.bucket.is_full(rate, now)) {
                return count;
            }
            self.remove(number);
        }
        most
    }

    /// Forgets a source without flows.
    fn remove(&mut self, number: u32) {
        self.idle.unlink(&mut self.slots, number);
        self.index.remove(&self.slots, number);
        self.slots.remove(number);
    }

    fn prefix(&self, address: IpAddr) -> Ipv6Addr {
        match self.prefixes.source(address) {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        }
    }
}

/// A token bucket for `rate` datagrams a second that holds `rate` of them.
///
/// It counts what is missing, in billionths of a datagram: of those a nanosecond brings back
/// exactly `rate`, so nothing is ever rounded.
#[derive(Debug, Default)]
struct Bucket {
    missing: u64,
    /// When that was.
    counted: u64,
}

const DATAGRAM: u64 = 1_000_000_000;

impl Bucket {
    fn take(&mut self, rate: u32, now: u64) -> bool {
        let full = u64::from(rate) * DATAGRAM;
        // A limit may have been lowered.
        self.missing = self.missing_at(rate, now).min(full);
        self.counted = now;
        let admitted = self.missing + DATAGRAM <= full;
        if admitted {
            self.missing += DATAGRAM;
        }
        admitted
    }

    /// Whether it is as good as a new one.
    fn is_full(&self, rate: Option<u32>, now: u64) -> bool {
        rate.is_none_or(|rate| rate == 0 || self.missing_at(rate, now) == 0)
    }

    fn missing_at(&self, rate: u32, now: u64) -> u64 {
        let elapsed = now.saturating_sub(self.counted);
        self.missing.saturating_sub(elapsed.saturating_mul(rate.into()))
    }
}

impl Linked for Source {
    fn links(&mut self) -> &mut Links {
        &mut self.links
    }
}

impl Keyed for Source {
    type Key = Ipv6Addr;

    fn key(&self) -> &Ipv6Addr {
        &self.prefix
    }
}

#[cfg(test)]
mod tests;
