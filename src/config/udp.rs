//! What only a UDP listener has: `limits` on flows, and `udp`, which says when a flow ends.

use super::defaults;

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
    /// A flow ends after as many datagrams from the backend; `None` is `off`.
    pub responses: Option<u32>,
    /// A flow takes as many datagrams from the client, at least one; `None` is `off`.
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
