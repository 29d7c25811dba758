//! Which routes the protocols that a client offers satisfy.

use std::collections::HashMap;

use super::RouteSpec;
use crate::wire::Alpn;

/// Protocols with a bit of their own. The registry has fewer in all; of a configuration with more,
/// the others are compared one by one.
const BITS: usize = u128::BITS as usize;

/// The protocols that the routes of a listener name.
#[derive(Debug)]
pub(super) struct Protocols {
    /// The bit of each protocol.
    bits: HashMap<Box<[u8]>, u128, ahash::RandomState>,
    /// For every route; empty if none has a condition.
    wanted: Box<[Wanted]>,
}

/// The condition of one route.
#[derive(Clone, Debug, Default)]
struct Wanted {
    bits: u128,
    /// Protocols without a bit.
    others: Alpn,
}

/// What a client offers.
pub(super) struct Offered<'a> {
    bits: u128,
    alpn: &'a Alpn,
}

impl Protocols {
    pub(super) fn compile(specs: &[RouteSpec]) -> Self {
        if specs.iter().all(|spec| spec.alpn.is_empty()) {
            return Protocols { bits: HashMap::default(), wanted: Box::default() };
        }
        let mut bits: HashMap<Box<[u8]>, u128, ahash::RandomState> = HashMap::default();
        let wanted = specs.iter().map(|spec| {
            let mut wanted = Wanted::default();
            let mut others = Vec::new();
            for name in spec.alpn.iter() {
                if bits.len() < BITS && !bits.contains_key(name) {
                    bits.insert(name.into(), 1 << bits.len());
                }
                match bits.get(name) {
                    Some(bit) => wanted.bits |= bit,
                    None => others.push(name),
                }
            }
            wanted.others = Alpn::from_names(others).expect("names of an Alpn are valid");
            wanted
        });
        let wanted = wanted.collect();
        Protocols { bits, wanted }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    pub(super) fn offered<'a>(&self, alpn: &'a Alpn) -> Offered<'a> {
        let mut bits = 0;
        if !self.is_empty() {
            bits = alpn.iter().filter_map(|name| self.bits.get(name)).fold(0, |all, bit| all | bit);
        }
        Offered { bits, alpn }
    }

    /// Whether the condition of `route` holds.
    pub(super) fn accept(&self, route: u32, offered: &Offered) -> bool {
        let Some(Wanted { bits, others }) = self.wanted.get(route as usize) else {
            return true;
        };
        let none = *bits == 0 && others.is_empty();
        none || bits & offered.bits != 0 || others.iter().any(|name| offered.alpn.offers(name))
    }
}
