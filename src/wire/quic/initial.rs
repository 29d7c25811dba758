//! The hello of a QUIC client, read from the Initial packets that it opens a connection with.
//!
//! The caller keeps the datagrams and passes them on afterwards, in order; [`InitialReader::push`]
//! looks at each once. A hello may need several: with a post-quantum key it does not fit into one,
//! and browsers cut it into shuffled pieces.
//!
//! What is read here must be what the backend will read: a name that is another one there would be
//! a way around the routes. Both see the same datagrams, and what implementations differ in is not
//! accepted at all. So there are two kinds of trouble:
//!
//! - **A packet that the keys do not open** is nobody's: whoever can send from the client's address
//!   may have made it. The packet that would open the connection is rejected; a later one is passed
//!   over, as the backend will (RFC 9001 section 5.5), or else it would be a way to end a connection
//!   without having seen it.
//! - **A packet that they open** is from the client, or from somebody who has seen its packets and
//!   could forge any. What breaks a rule is rejected then, whether or not a backend would mind: bytes
//!   of the hello sent twice with another content, a packet number used twice for something new,
//!   other connection ids than the first packet's, a datagram too small, a frame out of place.
//!
//! The keys are those of the first packet's destination. Until a server has answered, a client may
//! not use another (RFC 9000 section 7.2), and here none has: a packet to elsewhere under the same
//! keys is one that this reader could read and the backend would not.

use super::super::client_hello::{self, ClientHello, read_message};
use super::frames;
use super::keys::{Keys, Opened};
use super::numbers::{Numbers, Use};
use super::packet::{
    ConnectionId, HeaderFault, Kind, Long, Packet, Protected, Version, declared_version,
};
use super::stream::{Refused, Stream};

pub use super::stream::PIECES_MAX;

/// The smallest datagram that may carry a client's Initial packet (RFC 9000 section 14.1).
pub const DATAGRAM_MIN: usize = 1200;

/// The shortest destination that a client may make up (RFC 9000 section 7.2).
pub const MADE_UP_ID_MIN: usize = 8;

/// Bytes before the body of a handshake message, and the type of a hello (RFC 8446 section 4).
const MESSAGE_HEADER: usize = 4;
const CLIENT_HELLO: u8 = 1;

/// What the datagrams received so far are. All but [`Answer::NeedMore`] is final.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A part of a hello, or 0-RTT packets that have overtaken it.
    NeedMore,
    /// Nothing that opens a connection: it satisfies neither `sni` nor `alpn`.
    NotQuic,
    /// A long header of a version that is not known here: as [`Answer::NotQuic`].
    UnknownVersion,
    /// A whole hello.
    Hello(ClientHello),
    /// Of a known version and broken: to be dropped.
    Reject(Reason),
    /// A hello longer than the bound: to be dropped.
    TooLarge,
}

/// Why an opening is rejected; always the client's fault, and nothing to retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Reason {
    /// A header that breaks the rules of its version.
    #[error("{0}")]
    Header(HeaderFault),
    /// A destination of fewer than 8 bytes (RFC 9000 section 7.2), without a token: with one, a
    /// server may have chosen it.
    #[error("the destination connection id has fewer than 8 bytes")]
    IdTooShort,
    /// An Initial packet in a datagram of less than 1200 bytes (RFC 9000 section 14.1).
    #[error("the datagram has less than 1200 bytes")]
    DatagramTooSmall,
    /// The first Initial packet was not made with the keys that follow from its header.
    #[error("the packet does not decrypt")]
    Undecryptable,
    /// Reserved bits are set (RFC 9000 section 17.2).
    #[error("reserved bits of the header are set")]
    ReservedBits,
    /// Other connection ids than in the first Initial packet.
    #[error("the connection ids are not those of the first packet")]
    ConnectionIds,
    /// A packet number for the second time, with another content, or far behind the others.
    #[error("the packet number has been used before")]
    PacketNumber,
    /// A packet without a frame, with a malformed one, or with one that an Initial packet may not
    /// have (RFC 9000 section 12.4).
    #[error("a frame is malformed or does not belong into an Initial packet")]
    Frame,
    /// Different bytes for the same place in the hello.
    #[error("two pieces of the hello contradict each other")]
    Conflict,
    /// More than [`PIECES_MAX`] pieces of the hello that lie apart.
    #[error("the hello is cut into too many pieces")]
    TooManyPieces,
    /// The hello itself is malformed.
    #[error("{0}")]
    Hello(client_hello::Reason),
}

/// How far the first flight of one client has been read.
#[derive(Debug)]
pub struct InitialReader {
    /// A longer message is not read.
    max_bytes: usize,
    /// Whether there has been a datagram that may open a connection.
    begun: bool,
    /// The destination of the first Initial packet that the keys opened.
    original: Option<ConnectionId>,
    /// From that packet to the final answer.
    flight: Option<Box<Flight>>,
    /// The final answer.
    finished: Option<Answer>,
}

/// What the client's Initial packets have in common, and what was in them.
#[derive(Debug)]
struct Flight {
    version: Version,
    dcid: ConnectionId,
    scid: ConnectionId,
    keys: Keys,
    numbers: Numbers,
    stream: Stream,
}

/// An Initial packet as it was received.
struct Received<'a> {
    version: Version,
    long: Long<'a>,
    protected: Protected<'a>,
    /// Bytes of the datagram that it was in.
    datagram_bytes: usize,
}

impl InitialReader {
    /// A reader that gives up on a hello of more than `max_bytes`, its own header included. Besides
    /// a few KiB it keeps at most twice that, and at most twice what has been received.
    pub fn new(max_bytes: usize) -> Self {
        InitialReader { max_bytes, begun: false, original: None, flight: None, finished: None }
    }

    /// Looks at the next datagram of the client, all packets in it.
    ///
    /// Once the answer is another than [`Answer::NeedMore`] it stays, whatever else arrives.
    pub fn push(&mut self, datagram: &[u8]) -> Answer {
        if let Some(answer) = &self.finished {
            return answer.clone();
        }
        let answer = match self.datagram(datagram).and_then(|()| self.hello()) {
            Ok(hello) => Answer::Hello(hello),
            Err(answer) => answer,
        };
        if answer != Answer::NeedMore {
            self.flight = None;
            self.finished = Some(answer.clone());
        }
        answer
    }

    /// The connection id that the client has made up for the server, once the keys have opened an
    /// Initial packet: all that it sends has this destination, until it knows the server's choice.
    pub fn original_dcid(&self) -> Option<&ConnectionId> {
        self.original.as_ref()
    }

    fn datagram(&mut self, datagram: &[u8]) -> Result<(), Answer> {
        if !self.begun {
            may_open(datagram)?;
            self.begun = true;
        }
        let mut rest = datagram;
        while let Some(Packet::Long(long)) = Packet::parse(rest) {
            let Some(version) = Version::from_wire(long.version) else {
                break;
            };
            if long.kind == Kind::Retry {
                break;
            }
            let protected = match long.protected() {
                Ok(protected) => protected,
                Err(fault) if self.flight.is_none() => return reject(Reason::Header(fault)),
                // Nothing says that the client has sent it.
                Err(_) => break,
            };
            rest = protected.rest;
            if long.kind == Kind::Initial {
                let datagram_bytes = datagram.len();
                self.initial(&Received { version, long, protected, datagram_bytes })?;
            }
        }
        Ok(())
    }

    fn initial(&mut self, received: &Received<'_>) -> Result<(), Answer> {
        let (flight, opened) = match &mut self.flight {
            none @ None => {
                let (flight, opened) = Flight::begin(received)?;
                self.original = Some(flight.dcid);
                (none.insert(Box::new(flight)), opened)
            }
            Some(flight) => match flight.recognize(received)? {
                Some(opened) => (flight, opened),
                None => return Ok(()),
            },
        };
        flight.read(&opened, self.max_bytes)
    }

    fn hello(&self) -> Result<ClientHello, Answer> {
        let stream = &self.flight.as_ref().ok_or(Answer::NeedMore)?.stream;
        if stream.prefix(1).is_some_and(|kind| *kind != [CLIENT_HELLO]) {
            return reject(Reason::Hello(client_hello::Reason::NotClientHello));
        }
        let header = stream.prefix(MESSAGE_HEADER);
        let Some(&[_, high, middle, low]) = header.as_deref() else {
            return Err(Answer::NeedMore);
        };
        let length = MESSAGE_HEADER + u32::from_be_bytes([0, high, middle, low]) as usize;
        if length > self.max_bytes {
            return Err(Answer::TooLarge);
        }
        let message = stream.prefix(length).ok_or(Answer::NeedMore)?;
        read_message(&message).map_err(|reason| Answer::Reject(Reason::Hello(reason)))
    }
}

impl Flight {
    /// The flight that a first Initial packet begins, and that packet.
    fn begin(received: &Received<'_>) -> Result<(Self, Opened), Answer> {
        let Received { version, long, protected, datagram_bytes } = received;
        if *datagram_bytes < DATAGRAM_MIN {
            return reject(Reason::DatagramTooSmall);
        }
        if long.dcid.len() < MADE_UP_ID_MIN && protected.token.is_empty() {
            return reject(Reason::IdTooShort);
        }
        let too_long = Answer::Reject(Reason::Header(HeaderFault::IdTooLong));
        let id = |id| ConnectionId::new(id).ok_or(too_long.clone());
        let (dcid, scid) = (id(long.dcid)?, id(long.scid)?);
        let keys = Keys::client(*version, long.dcid);
        let opened = keys.open(protected, None).ok_or(Answer::Reject(Reason::Undecryptable))?;
        let (numbers, stream) = (Numbers::default(), Stream::default());
        Ok((Flight { version: *version, dcid, scid, keys, numbers, stream }, opened))
    }

    /// Opens a later Initial packet; `None` if it was not made with the keys of the first.
    fn recognize(&self, received: &Received<'_>) -> Result<Option<Opened>, Answer> {
        let Received { version, long, protected, datagram_bytes } = received;
        if *version != self.version {
            return Ok(None);
        }
        let Some(opened) = self.keys.open(protected, self.numbers.largest()) else {
            return Ok(None);
        };
        if *datagram_bytes < DATAGRAM_MIN {
            return reject(Reason::DatagramTooSmall);
        }
        if long.dcid != self.dcid.as_slice() || long.scid != self.scid.as_slice() {
            return reject(Reason::ConnectionIds);
        }
        Ok(Some(opened))
    }

    /// Takes what is in a packet.
    fn read(&mut self, opened: &Opened, max_bytes: usize) -> Result<(), Answer> {
        if !opened.reserved_bits_clear {
            return reject(Reason::ReservedBits);
        }
        if opened.payload.is_empty() {
            return reject(Reason::Frame);
        }
        // A server drops a packet whose number it knows (RFC 9000 section 12.3). A copy is fine.
        let again = match self.numbers.insert(opened.number) {
            Use::First => false,
            Use::Again => true,
            Use::TooOld => return reject(Reason::PacketNumber),
        };
        for frame in frames::crypto(&opened.payload) {
            let frame = frame.map_err(|_| Answer::Reject(Reason::Frame))?;
            let start = usize::try_from(frame.offset).unwrap_or(usize::MAX);
            if start.saturating_add(frame.data.len()) > max_bytes {
                return Err(Answer::TooLarge);
            }
            if again && !self.stream.contains(start, frame.data) {
                return reject(Reason::PacketNumber);
            }
            self.stream.insert(start, frame.data).map_err(|refused| match refused {
                Refused::Conflict => Answer::Reject(Reason::Conflict),
                Refused::TooManyPieces => Answer::Reject(Reason::TooManyPieces),
            })?;
        }
        Ok(())
    }
}

/// Whether the first datagram may be that of a client that opens a connection.
fn may_open(datagram: &[u8]) -> Result<(), Answer> {
    match Packet::parse(datagram) {
        None if declared_version(datagram).is_some() => {
            reject(Reason::Header(HeaderFault::Truncated))
        }
        None | Some(Packet::Short { .. }) => Err(Answer::NotQuic),
        Some(Packet::Long(long)) => match long.kind {
            // 0-RTT packets may overtake the Initial packet that they were sent behind.
            Kind::Initial | Kind::ZeroRtt => Ok(()),
            Kind::Unknown => Err(Answer::UnknownVersion),
            Kind::Handshake | Kind::Retry | Kind::VersionNegotiation => Err(Answer::NotQuic),
        },
    }
}

fn reject<T>(reason: Reason) -> Result<T, Answer> {
    Err(Answer::Reject(reason))
}
