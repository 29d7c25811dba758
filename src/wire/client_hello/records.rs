//! From records to the one handshake message at their beginning.

use std::borrow::Cow;

use super::message::{self, HEADER as MESSAGE_HEADER};
use super::{Answer, Reason};

/// Bytes before a record's fragment: type, version, length (RFC 8446 section 5.1).
const RECORD_HEADER: usize = 5;

/// The longest fragment of a record that is not encrypted (RFC 8446 section 5.1).
const FRAGMENT_MAX: usize = 1 << 14;

/// Content types of records, from ChangeCipherSpec to heartbeat (RFC 8446 section B.1).
const TYPES: std::ops::RangeInclusive<u8> = 20..=24;
const HANDSHAKE: u8 = 22;

/// The major version of every record since SSL 3.0.
const MAJOR: u8 = 3;

/// How far the first flight of one client has been looked at.
///
/// Positions are offsets in the bytes received. Between calls `fragment <= record_end`, everything
/// before `fragment` has been checked, and `gathered` message bytes lie in the records before it.
#[derive(Clone, Debug)]
pub struct Reader {
    /// More bytes than these, as received, are never looked at.
    max_bytes: usize,
    /// Where the fragment of the current record starts; 0 before the first record's header.
    fragment: usize,
    /// Where the current record ends, received or not.
    record_end: usize,
    /// Bytes of the message in the records before the current one.
    gathered: usize,
    /// The first bytes of the message, as far as they have arrived.
    header: [u8; MESSAGE_HEADER],
    /// How many of them.
    header_length: usize,
}

/// Where the whole message lies.
struct Extent {
    /// Bytes of the message, its header included.
    length: usize,
    /// Whether all of it is in the first record.
    contiguous: bool,
}

impl Reader {
    /// A reader that gives up on a hello of more than `max_bytes`, counted as received: record
    /// headers included, and nothing of what follows the hello.
    pub fn new(max_bytes: usize) -> Self {
        Reader {
            max_bytes,
            fragment: 0,
            record_end: 0,
            gathered: 0,
            header: [0; MESSAGE_HEADER],
            header_length: 0,
        }
    }

    /// Looks at everything `received` so far: the bytes of the last call and what came since.
    ///
    /// The answer depends on the bytes alone, not on how they were split over calls. Once it is
    /// another than [`Answer::NeedMore`] it stays, whatever else arrives.
    pub fn advance(&mut self, received: &[u8]) -> Answer {
        let within = received.get(..self.max_bytes).unwrap_or(received);
        match self.scan(within) {
            Ok(extent) => match message::read_message(&extent.message(within)) {
                Ok(hello) => Answer::Hello(hello),
                Err(reason) => Answer::Reject(reason),
            },
            Err(Answer::NeedMore) if received.len() >= self.max_bytes => Answer::TooLarge,
            Err(answer) => answer,
        }
    }

    /// Where the hello ends in the bytes received, once [`Reader::advance`] has found it.
    pub fn end(&self) -> usize {
        let [_, high, middle, low] = self.header;
        let length = MESSAGE_HEADER + u32::from_be_bytes([0, high, middle, low]) as usize;
        self.fragment + length.saturating_sub(self.gathered)
    }

    /// Walks the records until the message is complete, or says why it is not.
    fn scan(&mut self, received: &[u8]) -> Result<Extent, Answer> {
        loop {
            if let Some(length) = self.message_length(received)? {
                let have = received.len().min(self.record_end).saturating_sub(self.fragment);
                if self.gathered.saturating_add(have) >= length {
                    return Ok(Extent { length, contiguous: self.gathered == 0 });
                }
            }
            if received.len() < self.record_end {
                return Err(Answer::NeedMore);
            }
            self.next_record(received)?;
        }
    }

    /// Enters the record that follows the current one.
    fn next_record(&mut self, received: &[u8]) -> Result<(), Answer> {
        let first = self.fragment == 0;
        let header = received.get(self.record_end..).unwrap_or_default();
        let &[kind, ref rest @ ..] = header else {
            return Err(Answer::NeedMore);
        };
        match kind {
            HANDSHAKE => {}
            _ if !first => return Err(Answer::Reject(Reason::Interleaved)),
            _ if !TYPES.contains(&kind) => return Err(Answer::NotTls),
            _ => {}
        }
        let &[major, ref rest @ ..] = rest else {
            return Err(Answer::NeedMore);
        };
        match (kind, major) {
            (HANDSHAKE, MAJOR) => {}
            (HANDSHAKE, _) => return Err(Answer::Reject(Reason::RecordVersion)),
            (_, MAJOR) => return Err(Answer::Reject(Reason::NotHandshake)),
            _ => return Err(Answer::NotTls),
        }
        // The minor version says nothing (RFC 8446 section 5.1).
        let &[_minor, high, low, ..] = rest else {
            return Err(Answer::NeedMore);
        };
        let length = usize::from(u16::from_be_bytes([high, low]));
        match length {
            0 => return Err(Answer::Reject(Reason::EmptyRecord)),
            1..=FRAGMENT_MAX => {}
            _ => return Err(Answer::Reject(Reason::RecordTooLong)),
        }
        // No overflow: offsets are of bytes in memory, plus one record.
        self.gathered += self.record_end - self.fragment;
        self.fragment = self.record_end + RECORD_HEADER;
        self.record_end = self.fragment + length;
        Ok(())
    }

    /// The length of the message with its header, once that has arrived.
    fn message_length(&mut self, received: &[u8]) -> Result<Option<usize>, Answer> {
        let end = received.len().min(self.record_end);
        let start = self.fragment.saturating_add(self.header_length.saturating_sub(self.gathered));
        let fresh = received.get(start..end).unwrap_or_default();
        let missing = self.header.iter_mut().skip(self.header_length);
        for (slot, byte) in missing.zip(fresh) {
            *slot = *byte;
            self.header_length += 1;
        }
        let [kind, high, middle, low] = self.header;
        if self.header_length > 0 && kind != message::CLIENT_HELLO {
            return Err(Answer::Reject(Reason::NotClientHello));
        }
        if self.header_length < MESSAGE_HEADER {
            return Ok(None);
        }
        let body = u32::from_be_bytes([0, high, middle, low]);
        let length = MESSAGE_HEADER + body as usize;
        match self.least_end(length) > self.max_bytes {
            true => Err(Answer::TooLarge),
            false => Ok(Some(length)),
        }
    }

    /// Where a message of `length` ends at the earliest, if the records to come are full ones.
    fn least_end(&self, length: usize) -> usize {
        let missing = length.saturating_sub(self.gathered);
        let in_record = self.record_end - self.fragment;
        match missing.checked_sub(in_record) {
            None => self.fragment + missing,
            Some(later) => self.record_end + later + later.div_ceil(FRAGMENT_MAX) * RECORD_HEADER,
        }
    }
}

impl Extent {
    /// The message: where it lies, or put together from the records that [`Reader::scan`] checked.
    fn message<'a>(&self, received: &'a [u8]) -> Cow<'a, [u8]> {
        let mut rest = received;
        if self.contiguous {
            let fragment = rest.get(RECORD_HEADER..).unwrap_or_default();
            return Cow::Borrowed(fragment.get(..self.length).unwrap_or(fragment));
        }
        let mut message = Vec::with_capacity(self.length);
        while let [_, _, _, high, low, after @ ..] = rest {
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            let (fragment, next) = after.split_at_checked(length).unwrap_or((after, &[]));
            let missing = self.length - message.len();
            message.extend_from_slice(fragment.get(..missing).unwrap_or(fragment));
            if message.len() == self.length {
                break;
            }
            rest = next;
        }
        Cow::Owned(message)
    }
}
