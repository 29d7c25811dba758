//! The first flight of a TLS client, read without I/O: which name and protocols it asks for.
//!
//! The caller keeps every byte it has received in one buffer, and passes that buffer on to the
//! backend afterwards. [`Reader::advance`] looks at what is new in it and says whether more is
//! needed. It holds offsets only, so an unfinished hello costs no memory beyond the buffer, and
//! each byte is looked at a bounded number of times however the hello is split over segments and
//! records.
//!
//! What starts as TLS and is not a well-formed hello is rejected, never passed for something else:
//! a name that this reader missed and the backend finds would be a way around the routes.
//!
//! ```text
//! record  = type(1)=22 version(2)=3,x length(2) fragment        RFC 8446 section 5.1
//! message = type(1)=1 length(3) ClientHello                     RFC 8446 section 4
//! ```
//!
//! The message may be cut into records anywhere, also inside its own header.

mod message;
mod records;
#[cfg(test)]
pub(super) mod tests;

use super::alpn::Alpn;
use super::host_name::NameFault;

pub use message::read_message;
pub use records::Reader;

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientHello {
    /// The server's name (RFC 6066 section 3): A-labels in lower case, no trailing dot. `None`
    /// without the extension, and where an IP literal stands in it. With ECH, the outer name.
    pub sni: Option<Box<str>>,
    /// The protocols offered; with ECH, the outer ones.
    pub alpn: Alpn,
    /// The versions offered, as on the wire (0x0304 is TLS 1.3) and in the client's order, GREASE
    /// among them: `supported_versions` (RFC 8446 section 4.2.1), or else the legacy version alone.
    pub versions: Box<[u16]>,
    /// Whether the extension `encrypted_client_hello` is there, be it GREASE (RFC 9849).
    pub ech: bool,
}

/// What the bytes received so far are. All but [`Answer::NeedMore`] is final.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The beginning of a hello, or nothing yet.
    NeedMore,
    /// No TLS record: a protocol of another kind, which satisfies neither `sni` nor `alpn`.
    NotTls,
    /// A whole hello. What follows it in the buffer has not been looked at.
    Hello(ClientHello),
    /// Starts as TLS and is malformed: to be closed.
    Reject(Reason),
    /// No complete hello within the bound, or one that declares to be longer: to be closed.
    TooLarge,
}

/// Why a hello is rejected; always the client's fault, and nothing to retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Reason {
    /// A handshake record of another major version than 3.
    #[error("the version of a record is not 3.x")]
    RecordVersion,
    /// The first record is an alert, application data or the like.
    #[error("the first record is not a handshake")]
    NotHandshake,
    /// A record of another type in the middle of the hello (RFC 8446 section 5.1 forbids it).
    #[error("a record of another type interrupts the hello")]
    Interleaved,
    /// A handshake record without content (RFC 8446 section 5.1 forbids it).
    #[error("a record is empty")]
    EmptyRecord,
    /// A record that declares more than 2^14 bytes (RFC 8446 section 5.1).
    #[error("a record is longer than 16384 bytes")]
    RecordTooLong,
    /// A handshake that starts with another message.
    #[error("the first message is not a ClientHello")]
    NotClientHello,
    /// A field that runs past the one around it, or leaves a remainder in it.
    #[error("the lengths in the hello do not add up")]
    Length,
    /// A list that must not be empty is (cipher suites, compression methods, versions).
    #[error("a list in the hello is empty")]
    EmptyList,
    /// An extension twice (RFC 8446 section 4.2).
    #[error("an extension is there twice")]
    DuplicateExtension,
    /// A server name of a type other than `host_name`, the only one there is.
    #[error("the server name is not a host name")]
    NameType,
    /// Several server names (RFC 6066 section 3).
    #[error("there is more than one server name")]
    SeveralNames,
    /// A server name that is no host name.
    #[error("invalid server name: {0}")]
    Name(NameFault),
    /// An ALPN without protocols, or an empty or overrunning one among them.
    #[error("the list of protocols (ALPN) is malformed")]
    Alpn,
}
