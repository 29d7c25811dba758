//! The handshake's bytes, put together from pieces that come in any order.

use std::borrow::Cow;

/// How many pieces may lie apart. Browsers shuffle a hello into some twenty frames; whoever sends
/// hundreds wants to make work.
pub const PIECES_MAX: usize = 128;

/// Bytes received, and where they belong: as many as were sent, however far apart.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// In order; none is empty or overlaps another. A piece that ends where the next begins is only
    /// joined with it if that had come first: what has been received is never moved.
    pieces: Vec<Piece>,
}

#[derive(Debug)]
struct Piece {
    start: usize,
    bytes: Vec<u8>,
}

/// Why bytes cannot be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// Other bytes have been received for the same place.
    Conflict,
    TooManyPieces,
}

impl Piece {
    fn end(&self) -> usize {
        self.start + self.bytes.len()
    }

    /// What is to be between `start` and `end`, as far as it is in here.
    fn overlap(&self, start: usize, end: usize) -> &[u8] {
        let from = start.saturating_sub(self.start);
        let to = end.saturating_sub(self.start).min(self.bytes.len());
        self.bytes.get(from..to).unwrap_or_default()
    }
}

impl Stream {
    /// Takes `data`, whose first byte belongs at `start`. What has been received before must be
    /// the same.
    ///
    /// The caller bounds `start`: no overflow.
    pub(super) fn insert(&mut self, start: usize, data: &[u8]) -> Result<(), Refused> {
        let end = start + data.len();
        let mut at = self.pieces.partition_point(|piece| piece.end() <= start);
        let mut from = start;
        while from < end {
            let next = self.pieces.get(at).filter(|next| next.start < end);
            let gap_end = next.map_or(end, |next| next.start.max(from));
            let fresh = data.get(from - start..gap_end - start).unwrap_or_default();
            if let Some(next) = next {
                let known = next.overlap(gap_end, end);
                let sent = data.get(gap_end - start..).unwrap_or_default();
                if !sent.starts_with(known) {
                    return Err(Refused::Conflict);
                }
                from = gap_end + known.len();
            } else {
                from = end;
            }
            if self.fill(at, gap_end - fresh.len(), fresh)? {
                at += 1;
            }
            at += 1;
        }
        Ok(())
    }

    /// Puts `fresh` before the piece at `at`; whether that made a piece of its own.
    fn fill(&mut self, at: usize, start: usize, fresh: &[u8]) -> Result<bool, Refused> {
        if fresh.is_empty() {
            return Ok(false);
        }
        let before = at.checked_sub(1).and_then(|before| self.pieces.get_mut(before));
        if let Some(before) = before.filter(|before| before.end() == start) {
            before.bytes.extend_from_slice(fresh);
            return Ok(false);
        }
        if self.pieces.len() == PIECES_MAX {
            return Err(Refused::TooManyPieces);
        }
        self.pieces.insert(at, Piece { start, bytes: fresh.to_vec() });
        Ok(true)
    }

    /// Whether `data` at `start` has been received, all of it and the same.
    pub(super) fn contains(&self, start: usize, data: &[u8]) -> bool {
        let end = start + data.len();
        let first = self.pieces.partition_point(|piece| piece.end() <= start);
        let pieces = self.pieces.get(first..).unwrap_or_default();
        let known = pieces.iter().flat_map(|piece| piece.overlap(start, end));
        let covered = self.gapless(first, start);
        covered >= end && known.eq(data)
    }

    /// The first `length` bytes, if they are all there.
    pub(super) fn prefix(&self, length: usize) -> Option<Cow<'_, [u8]>> {
        if self.gapless(0, 0) < length {
            return None;
        }
        match self.pieces.first() {
            Some(first) if first.bytes.len() >= length => first.bytes.get(..length).map(Cow::from),
            _ => {
                let mut whole = Vec::with_capacity(length);
                for piece in &self.pieces {
                    let missing = length - whole.len();
                    whole.extend_from_slice(piece.bytes.get(..missing).unwrap_or(&piece.bytes));
                }
                Some(whole.into())
            }
        }
    }

    /// How far the stream reaches without a gap from `start`, which lies in the piece `first` or
    /// before it.
    fn gapless(&self, first: usize, start: usize) -> usize {
        let pieces = self.pieces.get(first..).unwrap_or_default();
        pieces.iter().fold(start, |end, piece| if piece.start <= end { piece.end() } else { end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"the quick brown fox jumps over the lazy dog";

    fn insert(stream: &mut Stream, from: usize, to: usize) {
        assert_eq!(stream.insert(from, &TEXT[from..to]), Ok(()));
        assert!(stream.contains(from, &TEXT[from..to]));
    }

    /// Any three pieces, in any order, and then all.
    #[test]
    fn pieces_in_any_order() {
        let text = &TEXT[..7];
        let ranges: Vec<_> = (0..7).flat_map(|from| (from..=7).map(move |to| (from, to))).collect();
        for &a in &ranges {
            for &b in &ranges {
                for &c in &ranges {
                    let mut stream = Stream::default();
                    let mut known = [false; 7];
                    for (from, to) in [a, b, c] {
                        insert(&mut stream, from, to);
                        known[from..to].fill(true);
                    }
                    let gapless = known.iter().take_while(|known| **known).count();
                    for length in 0..=7 {
                        let expected = (length <= gapless).then_some(&text[..length]);
                        assert_eq!(stream.prefix(length).as_deref(), expected, "{a:?} {b:?} {c:?}");
                    }
                    for &(from, to) in &ranges {
                        let all = known[from..to].iter().all(|known| *known);
                        assert_eq!(
                            stream.contains(from, &text[from..to]),
                            all,
                            "{a:?} {b:?} {c:?}"
                        );
                    }
                    insert(&mut stream, 0, 7);
                    assert_eq!(stream.prefix(7).as_deref(), Some(text));
                }
            }
        }
    }

    #[test]
    fn another_byte_for_the_same_place() {
        for at in 0..20 {
            let mut stream = Stream::default();
            for (from, to) in [(0, 5), (5, 8), (9, 11), (15, 20)] {
                insert(&mut stream, from, to);
            }
            let known = ![8, 11, 12, 13, 14].contains(&at);
            let mut text = TEXT[..20].to_vec();
            text[at] ^= 1;
            assert!(!stream.contains(0, &text));
            assert_eq!(stream.insert(0, &text).is_err(), known, "{at}");
        }
    }

    #[test]
    fn pieces_are_counted() {
        let mut stream = Stream::default();
        for at in 0..PIECES_MAX {
            assert_eq!(stream.insert(2 * at, b"a"), Ok(()));
        }
        let last = 2 * PIECES_MAX;
        assert_eq!(stream.insert(last, b"a"), Err(Refused::TooManyPieces));
        // Joined with the last one.
        assert_eq!(stream.insert(last - 1, b"aa"), Ok(()));
        assert_eq!(stream.insert(last + 2, b"a"), Err(Refused::TooManyPieces));
        let mut bytewise = Stream::default();
        for at in 0..10 * PIECES_MAX {
            assert_eq!(bytewise.insert(at, b"a"), Ok(()));
        }
        assert_eq!(bytewise.pieces.len(), 1);
    }
}
