//! Datagrams in a row from one sender, of one size but the last: sent on by one system call.

use std::io::{self, IoSlice};

use crate::limits::{DATAGRAM_BATCH, DATAGRAM_SEGMENTS};
use crate::sys::datagram::receive::{Batch, Message};

/// The largest payload of a datagram over IPv4, and so of a train.
pub const TRAIN_BYTES: usize = 65_507;

/// One datagram, or several in a row of which only the last may be shorter than the others.
#[derive(Clone, Copy)]
pub struct Train<'a> {
    batch: &'a Batch,
    /// Messages of the batch: the first, and the one after the last.
    slots: (usize, usize),
    segment: usize,
    bytes: usize,
}

impl<'a> Train<'a> {
    /// Bytes of all datagrams.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of datagrams, at least 1.
    pub fn count(&self) -> usize {
        // A single one may be empty.
        if self.segment == 0 { 1 } else { self.bytes.div_ceil(self.segment) }
    }

    /// The datagrams one by one.
    pub fn datagrams(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let segment = self.segment.max(1);
        self.slots().flat_map(move |bytes| {
            // `chunks` gives nothing of nothing.
            let empty = bytes.is_empty().then_some(bytes);
            empty.into_iter().chain(bytes.chunks(segment))
        })
    }

    fn slots(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let batch = self.batch;
        (self.slots.0..self.slots.1).map(|index| batch.bytes(index))
    }

    /// Sends the datagrams as one by `send`, which is given the size of a segment if they are more
    /// than one.
    ///
    /// # Errors
    ///
    /// That of `send`: nothing was sent. The kernel may take one by one what it refuses so: segments
    /// do not fit the path's MTU (EINVAL, EMSGSIZE), are too many for it, or the device cannot do
    /// checksums (EIO).
    pub(super) fn send(
        &self,
        send: impl FnOnce(&[IoSlice<'_>], Option<u16>) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.count() == 1 {
            return send(&[IoSlice::new(self.batch.bytes(self.slots.0))], None);
        }
        let segment = u16::try_from(self.segment).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut parts = [IoSlice::new(&[]); DATAGRAM_BATCH];
        let mut used = 0;
        for (part, bytes) in parts.iter_mut().zip(self.slots()) {
            *part = IoSlice::new(bytes);
            used += 1;
        }
        send(&parts[..used], Some(segment))
    }
}

/// The trains that a receive brought, with the message that each begins with.
#[derive(Clone)]
pub struct Trains<'a> {
    batch: &'a Batch,
    next: usize,
}

impl<'a> Trains<'a> {
    pub(super) fn of(batch: &'a Batch) -> Trains<'a> {
        Trains { batch, next: 0 }
    }
}

impl<'a> Iterator for Trains<'a> {
    type Item = (Message, Train<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let waiting = self.batch.messages().get(self.next..)?;
        let (first, _) = waiting.split_first()?;
        let (count, bytes) = coupled(waiting);
        let slots = (self.next, self.next + count);
        self.next = slots.1;
        Some((*first, Train { batch: self.batch, slots, segment: first.segment, bytes }))
    }
}

/// How many of these messages, at least the first, make a train, and of how many bytes.
fn coupled(messages: &[Message]) -> (usize, usize) {
    let Some((first, rest)) = messages.split_first() else {
        return (0, 0);
    };
    let mut bytes = first.len;
    // Nothing follows an empty datagram or one that is shorter than those before.
    let mut open = first.segment > 0 && first.len.is_multiple_of(first.segment);
    for (index, next) in rest.iter().enumerate() {
        let whole = next.segment == first.segment;
        // Several shorter ones would not end a train but begin another.
        let last = next.segment == next.len && next.len < first.segment;
        let fits = open
            && next.from == first.from
            && next.local == first.local
            && next.len > 0
            && (whole || last)
            && bytes + next.len <= TRAIN_BYTES
            && (bytes + next.len).div_ceil(first.segment) <= DATAGRAM_SEGMENTS;
        if !fits {
            return (index + 1, bytes);
        }
        bytes += next.len;
        open = next.len.is_multiple_of(first.segment);
    }
    (messages.len(), bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    /// Each message as the sender's port, length and segment; the expected lengths of trains.
    #[test]
    fn messages_are_coupled() {
        let check = |messages: &[(u16, usize, usize)], expected: &[usize]| {
            let messages: Vec<_> = messages
                .iter()
                .map(|&(port, len, segment)| {
                    let from = ([127, 0, 0, 1], port).into();
                    Message { from, local: None, len, segment }
                })
                .collect();
            let mut rest = &messages[..];
            let mut counts = Vec::new();
            while !rest.is_empty() {
                let (count, bytes) = coupled(rest);
                assert_eq!(bytes, rest[..count].iter().map(|m| m.len).sum::<usize>());
                counts.push(count);
                rest = &rest[count..];
            }
            assert_eq!(counts, expected, "{messages:?}");
        };
        check(&[(1, 100, 100), (1, 100, 100), (1, 100, 100)], &[3]);
        check(&[(1, 100, 100), (1, 99, 99), (1, 99, 99)], &[2, 1]);
        check(&[(1, 100, 100), (1, 99, 99), (1, 100, 100)], &[2, 1]);
        check(&[(1, 100, 100), (1, 101, 101), (1, 101, 101)], &[1, 2]);
        check(&[(1, 100, 100), (2, 100, 100), (1, 100, 100)], &[1, 1, 1]);
        // Empty ones go alone.
        check(&[(1, 0, 0), (1, 0, 0), (1, 1, 1), (1, 0, 0), (1, 1, 1)], &[1, 1, 1, 1, 1]);
        // What the kernel has put together: whole, and with a shorter end.
        check(&[(1, 300, 100), (1, 100, 100), (1, 250, 100), (1, 100, 100)], &[3, 1]);
        check(&[(1, 100, 100), (1, 150, 50), (1, 60, 50)], &[1, 2]);
        check(&[(1, 1000, 1000), (1, 60, 50), (1, 1000, 1000)], &[1, 1, 1]);
        check(&[(1, 100, 100), (1, 60, 100)], &[2]);
        // At most 64 datagrams and 65,507 bytes.
        check(&[(1, 630, 10), (1, 10, 10), (1, 10, 10)], &[2, 1]);
        check(&[(1, 635, 10), (1, 10, 10)], &[1, 1]);
        check(&[(1, 32_000, 32_000), (1, 32_000, 32_000), (1, 1507, 1507)], &[3]);
        check(&[(1, 32_000, 32_000), (1, 32_000, 32_000), (1, 1508, 1508)], &[2, 1]);
    }

    fn batch_of(datagrams: &[&[u8]]) -> Batch {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for datagram in datagrams {
            sender.send_to(datagram, receiver.local_addr().unwrap()).unwrap();
        }
        let mut batch = Batch::default();
        batch.receive_many(&receiver, true, DATAGRAM_BATCH).unwrap();
        batch
    }

    #[test]
    fn a_train_is_sent_as_segments_and_a_single_datagram_as_it_is() {
        let batch = batch_of(&[b"abc", b"def", b"gh", b"", b"i"]);
        let mut sent = Vec::new();
        for (_, train) in Trains::of(&batch) {
            let send = |parts: &[IoSlice<'_>], segment: Option<u16>| {
                let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
                sent.push((bytes, segment));
                Err(io::ErrorKind::WouldBlock.into())
            };
            assert_eq!(train.send(send).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
        let expected = [(&b"abcdefgh"[..], Some(3)), (b"", None), (b"i", None)];
        assert!(sent.iter().map(|(bytes, segment)| (&bytes[..], *segment)).eq(expected));
    }

    #[test]
    fn datagrams_are_told_apart() {
        let all: [&[u8]; 6] = [b"abc", b"def", b"gh", b"", b"", b"i"];
        let batch = batch_of(&all);
        let trains: Vec<_> = Trains::of(&batch).map(|(_, train)| train).collect();
        assert_eq!(trains.iter().map(Train::count).collect::<Vec<_>>(), [3, 1, 1, 1]);
        assert!(trains.iter().flat_map(Train::datagrams).eq(all));
    }
}
