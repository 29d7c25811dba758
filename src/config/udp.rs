//! What only a UDP listener has: `limits` on flows, and `udp`, which says when a flow ends.

use std::ops::RangeInclusive;

use super::defaults;
use super::error::Problem;
use super::report::Report;
use super::value::Value;
use super::warning::Suspicion;
use crate::limits::{
    FLOW_DATAGRAMS_MAX, FLOWS_MAX, RECEIVE_BUFFER_MAX, RECEIVE_BUFFER_MIN, SOURCE_RATE_MAX,
};

pub(super) const LIMITS: &[&str] = &["flows", "per_source"];
pub(super) const PER_SOURCE: &[&str] = &["flows", "rate", "prefix_v4", "prefix_v6"];
pub(super) const UDP: &[&str] = &["responses", "requests", "per_packet", "receive_buffer"];

/// What a listener speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Connections.
    Tcp,
    /// Datagrams, in flows.
    Udp,
}

impl Protocol {
    /// As in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        }
    }

    /// As in an IP header, and in the hash key `five_tuple`.
    pub fn number(self) -> u8 {
        match self {
            Protocol::Tcp => 6,
            Protocol::Udp => 17,
        }
    }
}

/// How much of a listener clients may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Flows at a time, 1 to [`crate::limits::FLOWS_MAX`].
    pub flows: u32,
    /// Of one source; `None` when off.
    pub per_source: Option<PerSource>,
}

impl Default for Limits {
    fn default() -> Self {
        defaults::LIMITS
    }
}

/// How much one source may take. `None` is `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerSource {
    /// Flows at a time.
    pub flows: Option<u32>,
    /// Datagrams a second.
    pub rate: Option<u32>,
    /// Clients whose IPv4 addresses begin with the same bits, 1 to 32, are one source.
    pub prefix_v4: u8,
    /// The same of IPv6 addresses, 1 to 128.
    pub prefix_v6: u8,
}

/// When a flow ends, and what its listener's sockets hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Udp {
    /// A flow ends when it has had as many answers for each datagram of its client; with 0 none is
    /// expected, and it ends when it is idle. `None` is `off`.
    pub responses: Option<u32>,
    /// After as many datagrams of a client, at least one, the next one begins another flow; the old
    /// one lives on for its answers. `None` is `off`.
    pub requests: Option<u32>,
    /// Each datagram from a client is a flow of its own. Then `responses` is some, `requests` is
    /// none, and no hello is read.
    pub per_packet: bool,
    /// Bytes that each socket may hold; `None` is `auto`.
    pub receive_buffer: Option<usize>,
}

impl Default for Udp {
    fn default() -> Self {
        defaults::UDP
    }
}

/// Reads `limits`.
pub(super) fn limits(value: Value<'_>, report: &mut Report) -> Option<Limits> {
    let table = value.table(LIMITS, "a map with `flows`", report)?;
    let defaults = defaults::LIMITS;
    Some(Limits {
        flows: table.read("flows", defaults.flows, |v| {
            let max = u64::from(FLOWS_MAX);
            u32::try_from(v.integer(1..=max, "a whole number", "100000", report)?).ok()
        }),
        per_source: table.read("per_source", defaults.per_source, |v| per_source(v, report)),
    })
}

/// `Some(None)` is `off`.
fn per_source(value: Value<'_>, report: &mut Report) -> Option<Option<PerSource>> {
    value.off_or(report, |value, report| {
        let table = value.table(PER_SOURCE, "`off` or a map with `flows` and `rate`", report)?;
        let defaults = defaults::PER_SOURCE;
        let mut prefix = |key: &'static str, default: u8, longest: u64, example: &'static str| {
            table.read(key, default, |v| {
                u8::try_from(v.integer(1..=longest, "a whole number", example, report)?).ok()
            })
        };
        let prefix_v4 = prefix("prefix_v4", defaults.prefix_v4, 32, "32");
        let prefix_v6 = prefix("prefix_v6", defaults.prefix_v6, 128, "64");
        let flows =
            table.read("flows", defaults.flows, |v| count(v, 1..=FLOWS_MAX, "off or 100", report));
        let rate = table.read("rate", defaults.rate, |v| {
            v.off_or(report, |v, report| v.rate(1..=SOURCE_RATE_MAX, report))
        });
        if flows.is_none() && rate.is_none() {
            value.warn(Suspicion::NothingLimited, report);
        }
        Some(PerSource { flows, rate, prefix_v4, prefix_v6 })
    })
}

/// Reads `udp`.
pub(super) fn udp(value: Value<'_>, report: &mut Report) -> Option<Udp> {
    let table = value.table(UDP, "a map of keys", report)?;
    let defaults = defaults::UDP;
    let per_packet = table.read("per_packet", defaults.per_packet, |v| v.boolean(report));
    let answers =
        if per_packet { Some(defaults::PER_PACKET_RESPONSES) } else { defaults.responses };
    let responses = table.read("responses", answers, |v| {
        let responses = count(v, 0..=FLOW_DATAGRAMS_MAX, "off or 1", report)?;
        if per_packet && responses.is_none() {
            v.error(Problem::ResponsesPerPacket, report);
        }
        Some(responses)
    });
    let requests = table.read("requests", defaults.requests, |v| {
        let requests = count(v, 1..=FLOW_DATAGRAMS_MAX, "off or 1", report)?;
        if per_packet && requests.is_some() {
            v.error(Problem::RequestsPerPacket, report);
        }
        Some(requests)
    });
    let receive_buffer =
        table.read("receive_buffer", defaults.receive_buffer, |v| receive_buffer(v, report));
    Some(Udp { responses, requests, per_packet, receive_buffer })
}

/// `Some(None)` is `off`.
fn count(
    value: Value<'_>,
    range: RangeInclusive<u32>,
    example: &'static str,
    report: &mut Report,
) -> Option<Option<u32>> {
    let range = u64::from(*range.start())..=u64::from(*range.end());
    value.off_or(report, |value, report| {
        u32::try_from(value.integer(range, "`off` or a whole number", example, report)?).ok()
    })
}

/// `Some(None)` is `auto`.
fn receive_buffer(value: Value<'_>, report: &mut Report) -> Option<Option<usize>> {
    if value.text("`auto` or a size", report)? == "auto" {
        return Some(None);
    }
    value.size(RECEIVE_BUFFER_MIN..=RECEIVE_BUFFER_MAX, report).map(Some)
}
