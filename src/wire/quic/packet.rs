//! The headers of QUIC packets: what every version has in common (RFC 8999), and what versions 1
//! (RFC 9000 section 17.2) and 2 (RFC 9369 section 3.2) add.
//!
//! ```text
//! long  = first(1)=1....... version(4) length(1) dcid length(1) scid ...   RFC 8999 section 5.1
//! short = first(1)=0....... dcid ...                                       RFC 8999 section 5.2
//! ```
//!
//! Only the receiver knows where the connection id of a short header ends. Several packets may
//! share a datagram; all but the last have a length then.

use std::fmt;

use super::super::cursor::Cursor;

/// The first bit: set in a long header, in any version.
const LONG: u8 = 0x80;
/// The second bit: set in all packets of versions 1 and 2, unless greased (RFC 9287).
const FIXED: u8 = 0x40;

/// The longest connection id of versions 1 and 2 (RFC 9000 section 17.2); others may have 255 bytes.
pub const ID_MAX: usize = 20;

/// A version whose packets can be read beyond their connection ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// RFC 9000.
    V1,
    /// RFC 9369.
    V2,
}

/// What a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The first packets of either side; the client's have the hello.
    Initial,
    /// Data of a client that resumes a session, sent along with its Initial.
    ZeroRtt,
    /// The rest of the handshake.
    Handshake,
    /// A server's request to come again with a token. It has no length.
    Retry,
    /// A server's list of versions, itself without one (version 0). It has no length.
    VersionNegotiation,
    /// Of a version that is not known here.
    Unknown,
}

/// The first packet of a datagram, its header read as far as all versions agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// With both connection ids.
    Long(Long<'a>),
    /// Of a connection that has been set up.
    Short {
        /// The destination's connection id and, not told apart, what follows it.
        after_first: &'a [u8],
    },
}

/// A packet with a long header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Long<'a> {
    /// As on the wire: a [`Version`] has no other kinds than its own.
    pub version: u32,
    /// What the packet is.
    pub kind: Kind,
    /// The connection id that its receiver chose, or a client made up for its first packets.
    pub dcid: &'a [u8],
    /// The connection id that its sender wants to be addressed by.
    pub scid: &'a [u8],
    /// The datagram from the first byte of this packet on.
    datagram: &'a [u8],
    /// What follows the ids.
    body: &'a [u8],
}

/// An Initial, 0-RTT or Handshake packet of a known version, told apart from what follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protected<'a> {
    /// Of an Initial packet, what a server had given the client to prove its address with.
    pub token: &'a [u8],
    /// From its first byte to its last.
    pub packet: &'a [u8],
    /// Where the packet number is in it, itself protected. At least 20 bytes follow: up to four
    /// are the number, and 16 are sampled behind four (RFC 9001 section 5.4.2).
    pub number_at: usize,
    /// The packets that follow in the same datagram, or whatever it is.
    pub rest: &'a [u8],
}

/// How the header of a packet of a known version breaks the rules of that version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum HeaderFault {
    /// The datagram ends before the connection ids do.
    #[error("the datagram ends in the header of the packet")]
    Truncated,
    /// The second bit is not set (RFC 9000 section 17.2). A client may leave it so only where a
    /// server has told it to, and then its Initial has a token (RFC 9287 section 3.1).
    #[error("the fixed bit of the packet is not set")]
    FixedBit,
    /// A connection id of more than 20 bytes (RFC 9000 section 17.2).
    #[error("a connection id has more than 20 bytes")]
    IdTooLong,
    /// A token that runs past the end of the datagram.
    #[error("the token runs past the end of the datagram")]
    Token,
    /// A length that runs past the end of the datagram, or leaves no room for number and tag.
    #[error("the length of the packet does not fit")]
    Length,
}

impl Version {
    /// The known version of this number.
    pub fn from_wire(version: u32) -> Option<Self> {
        match version {
            0x0000_0001 => Some(Version::V1),
            0x6b33_43cf => Some(Version::V2),
            _ => None,
        }
    }
}

impl Kind {
    fn new(first: u8, version: u32) -> Self {
        // Two bits of the type, which version 2 has moved on by one.
        let of_version_1 = match Version::from_wire(version) {
            Some(Version::V1) => first >> 4 & 3,
            Some(Version::V2) => (first >> 4).wrapping_sub(1) & 3,
            None if version == 0 => return Kind::VersionNegotiation,
            None => return Kind::Unknown,
        };
        match of_version_1 {
            0 => Kind::Initial,
            1 => Kind::ZeroRtt,
            2 => Kind::Handshake,
            _ => Kind::Retry,
        }
    }
}

impl<'a> Packet<'a> {
    /// Reads the header of the first packet in `datagram`: what a packet is routed by.
    ///
    /// `None` if it is no QUIC: a short header without the fixed bit, or a long one cut short. That
    /// is all: a packet of a known version may still be malformed, which [`Long::protected`] tells.
    pub fn parse(datagram: &'a [u8]) -> Option<Self> {
        let (&first, after_first) = datagram.split_first()?;
        if first & LONG == 0 {
            return (first & FIXED != 0).then_some(Packet::Short { after_first });
        }
        let mut header = Cursor::new(after_first);
        let version = header.u32()?;
        let (dcid, scid) = (header.vector8()?, header.vector8()?);
        let (kind, body) = (Kind::new(first, version), header.rest());
        Some(Packet::Long(Long { version, kind, dcid, scid, datagram, body }))
    }
}

impl<'a> Long<'a> {
    /// Tells the packet apart from what follows it, by the rules of versions 1 and 2. Packets of
    /// other versions, and those without a length, are [`HeaderFault::Length`].
    pub fn protected(&self) -> Result<Protected<'a>, HeaderFault> {
        if self.dcid.len() > ID_MAX || self.scid.len() > ID_MAX {
            return Err(HeaderFault::IdTooLong);
        }
        let mut body = Cursor::new(self.body);
        let token = match self.kind {
            Kind::Initial => body.vector_varint().ok_or(HeaderFault::Token)?,
            Kind::ZeroRtt | Kind::Handshake => &[],
            Kind::Retry | Kind::VersionNegotiation | Kind::Unknown => {
                return Err(HeaderFault::Length);
            }
        };
        let fixed = self.datagram.first().is_some_and(|first| first & FIXED != 0);
        if !fixed && self.kind == Kind::Initial && token.is_empty() {
            return Err(HeaderFault::FixedBit);
        }
        let sealed = body.vector_varint().filter(|sealed| sealed.len() >= 20);
        let sealed = sealed.ok_or(HeaderFault::Length)?;
        let rest = body.rest();
        let end = self.datagram.len() - rest.len();
        let (packet, _) = self.datagram.split_at(end);
        Ok(Protected { token, packet, number_at: end - sealed.len(), rest })
    }
}

/// The version that `datagram` declares in a long header, whatever follows it.
pub(super) fn declared_version(datagram: &[u8]) -> Option<Version> {
    let mut header = Cursor::new(datagram);
    header.u8().filter(|first| first & LONG != 0)?;
    Version::from_wire(header.u32()?)
}

/// The connection id that a server chose, from a datagram that it sent: the client's packets will
/// have it as their destination.
///
/// It is in all packets with a long header: Retry (which the client answers to that id), Initial and
/// Handshake, of which the first in the datagram is enough. `None` for others, for versions not
/// known here, and for an empty id, which tells nothing.
pub fn server_id_of(datagram: &[u8]) -> Option<&[u8]> {
    match Packet::parse(datagram)? {
        Packet::Long(Long {
            kind: Kind::Initial | Kind::Handshake | Kind::Retry, scid, ..
        }) if (1..=ID_MAX).contains(&scid.len()) => Some(scid),
        _ => None,
    }
}

/// A connection id of version 1 or 2, to keep: up to 20 bytes, without an allocation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId {
    bytes: [u8; ID_MAX],
    length: u8,
}

impl ConnectionId {
    /// `None` of more than 20 bytes.
    pub fn new(id: &[u8]) -> Option<Self> {
        let mut bytes = [0; ID_MAX];
        bytes.get_mut(..id.len())?.copy_from_slice(id);
        let length = u8::try_from(id.len()).ok()?;
        Some(ConnectionId { bytes, length })
    }

    /// As on the wire.
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or_default()
    }
}

/// In hexadecimal.
impl fmt::Debug for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
