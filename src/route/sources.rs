//! From a client's address to the routes that name a network around it.

use std::collections::HashMap;
use std::net::IpAddr;

use ipnet::IpNet;

use super::RouteSpec;
use super::lists::{Lists, number};

/// Networks by their prefix, each with its key in the lists.
#[derive(Debug)]
pub(super) struct Sources {
    keys: HashMap<IpNet, u32, ahash::RandomState>,
    /// The lengths that occur, longest first. One look-up each, at most 33 and 129; usually few.
    v4_lengths: Box<[u8]>,
    v6_lengths: Box<[u8]>,
    pub(super) lists: Lists,
}

impl Sources {
    pub(super) fn compile(specs: &[RouteSpec]) -> Self {
        let mut keys = HashMap::default();
        let mut lists: Vec<(IpNet, Vec<u32>)> = Vec::new();
        for (route, spec) in specs.iter().enumerate() {
            for net in spec.source.iter().map(|net| canonical(*net)) {
                let next = number(lists.len());
                let key = *keys.entry(net).or_insert(next);
                if key == next {
                    lists.push((net, Vec::new()));
                }
                if let Some((_, list)) = lists.get_mut(key as usize)
                    && list.last() != Some(&number(route))
                {
                    list.push(number(route));
                }
            }
        }
        let lengths = |v4: bool| {
            let of_family = keys.keys().filter(|net: &&IpNet| net.addr().is_ipv4() == v4);
            let mut lengths: Vec<u8> = of_family.map(IpNet::prefix_len).collect();
            lengths.sort_unstable_by(|a, b| b.cmp(a));
            lengths.dedup();
            lengths.into()
        };
        let (v4_lengths, v6_lengths) = (lengths(true), lengths(false));
        let empty = Lists::new([].into_iter(), []);
        let sources = Sources { keys, v4_lengths, v6_lengths, lists: empty };
        let parent = |net: IpNet| {
            let wider = net.prefix_len().checked_sub(1)?;
            sources.narrowest(net.addr(), wider)
        };
        let lists = lists.into_iter().map(|(net, list)| (list, parent(net)));
        let lists = Lists::new(specs.iter().map(|spec| !spec.source.is_empty()), lists);
        Sources { lists, ..sources }
    }

    /// The key of the narrowest network around `address`.
    pub(super) fn find(&self, address: IpAddr) -> Option<u32> {
        self.narrowest(address.to_canonical(), u8::MAX)
    }

    /// The key of a network that was compiled.
    pub(super) fn key(&self, net: IpNet) -> Option<u32> {
        self.keys.get(&canonical(net)).copied()
    }

    /// Of the networks around a canonical `address`, the key of the narrowest whose prefix has at
    /// most `longest` bits.
    fn narrowest(&self, address: IpAddr, longest: u8) -> Option<u32> {
        let lengths = if address.is_ipv4() { &self.v4_lengths } else { &self.v6_lengths };
        lengths.iter().filter(|&&length| length <= longest).find_map(|&length| {
            let net = IpNet::new(address, length).ok()?;
            self.keys.get(&net.trunc()).copied()
        })
    }
}

/// The one form of a network: no bits behind the prefix, and IPv4 where it is IPv4-mapped. A wider
/// IPv6 network around the mapped ones has no client in them: those are IPv4.
pub(super) fn canonical(net: IpNet) -> IpNet {
    let net = net.trunc();
    let v4 = match net.addr().to_canonical() {
        address @ IpAddr::V4(_) if net.addr().is_ipv6() => {
            net.prefix_len().checked_sub(96).and_then(|length| IpNet::new(address, length).ok())
        }
        _ => None,
    };
    v4.unwrap_or(net)
}
