//! The frames that a client may send in an Initial packet (RFC 9000 section 12.4, table 3).

use super::super::cursor::Cursor;

const PADDING: u8 = 0x00;
const PING: u8 = 0x01;
const ACK: u8 = 0x02;
const ACK_ECN: u8 = 0x03;
const CRYPTO: u8 = 0x06;
/// Of the transport; the application's (0x1d) has no place in an Initial packet.
const CONNECTION_CLOSE: u8 = 0x1c;

/// A piece of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Crypto<'a> {
    /// Where in the stream of handshake messages it belongs.
    pub(super) offset: u64,
    pub(super) data: &'a [u8],
}

/// A frame that is cut short, or none that belongs here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// The CRYPTO frames of a packet, every other frame checked and left out.
///
/// Frame types must be written in as few bytes as they need (RFC 9000 section 12.4): those here need
/// one.
pub(super) fn crypto(payload: &[u8]) -> impl Iterator<Item = Result<Crypto<'_>, Malformed>> {
    let mut rest = Cursor::new(payload);
    std::iter::from_fn(move || {
        while !rest.is_empty() {
            match next(&mut rest) {
                Some(None) => {}
                Some(Some(crypto)) => return Some(Ok(crypto)),
                None => {
                    rest = Cursor::new(&[]);
                    return Some(Err(Malformed));
                }
            }
        }
        None
    })
}

/// The next frame, if it is a CRYPTO frame; `None` if it is malformed.
fn next<'a>(rest: &mut Cursor<'a>) -> Option<Option<Crypto<'a>>> {
    match rest.u8()? {
        PADDING | PING => {}
        ACK => acknowledgement(rest)?,
        ACK_ECN => {
            acknowledgement(rest)?;
            (0..3).try_for_each(|_| rest.varint().map(drop))?;
        }
        CRYPTO => {
            let offset = rest.varint()?;
            return Some(Some(Crypto { offset, data: rest.vector_varint()? }));
        }
        CONNECTION_CLOSE => {
            let (_error, _frame) = (rest.varint()?, rest.varint()?);
            rest.vector_varint()?;
        }
        _ => return None,
    }
    Some(None)
}

/// Ranges of packet numbers (RFC 9000 section 19.3).
fn acknowledgement(rest: &mut Cursor<'_>) -> Option<()> {
    let (_largest, _delay, ranges, _first) =
        (rest.varint()?, rest.varint()?, rest.varint()?, rest.varint()?);
    // Each takes two bytes at least, so that a count too high ends with the packet.
    (0..ranges).try_for_each(|_| {
        let (_gap, _length) = (rest.varint()?, rest.varint()?);
        Some(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(payload: &[u8]) -> Vec<Result<Crypto<'_>, Malformed>> {
        crypto(payload).collect()
    }

    #[test]
    fn what_is_not_crypto_is_left_out() {
        let found = Ok(Crypto { offset: 5, data: b"ab" });
        let piece = [6, 5, 2, b'a', b'b'];
        let others: [&[u8]; 8] = [
            &[],
            &[0; 700],
            &[1],
            &[2, 0, 0, 0, 0],
            &[2, 0x40, 9, 1, 2, 0, 1, 1, 1, 1],
            &[3, 9, 1, 1, 0, 1, 1, 7, 8, 9],
            &[0x1c, 0, 6, 3, b'b', b'y', b'e'],
            &[0x1c, 0, 0, 0],
        ];
        for other in others {
            assert_eq!(read(&[other, &piece, other].concat()), [found], "{other:?}");
            assert_eq!(read(&[&piece[..], other, &piece].concat()), [found, found], "{other:?}");
        }
    }

    #[test]
    fn malformed_frames_end_the_packet() {
        let check = |frame: &[u8]| {
            let followed = [&[6, 0, 0][..], frame].concat();
            let found = read(&followed);
            assert_eq!(found.len(), 2, "{frame:?}");
            assert_eq!(found.last(), Some(&Err(Malformed)), "{frame:?}");
        };
        check(&[6]);
        check(&[6, 0]);
        check(&[6, 0, 1]);
        check(&[6, 0x40]);
        check(&[6, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        // The type in two bytes.
        check(&[0x40, 6, 0, 0]);
        check(&[2, 0, 0, 1, 0, 0]);
        check(&[2, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0]);
        check(&[3, 0, 0, 0, 0, 1, 1]);
        check(&[0x1c, 0, 0, 1]);
        for kind in (4..=0xff).filter(|kind| ![CRYPTO, CONNECTION_CLOSE].contains(kind)) {
            check(&[&[kind], &[0; 40][..]].concat());
        }
    }
}
