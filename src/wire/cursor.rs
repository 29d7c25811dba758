//! Reading integers and length-prefixed vectors, as in the presentation language of TLS (RFC 8446
//! section 3), and the variable-length integers of QUIC (RFC 9000 section 16). Nothing here can
//! read past the end: what is not there is `None`.

/// The bytes not read yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Cursor(bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(u8::from_be_bytes)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// An integer below 2^62 in as many bytes as its first two bits say.
    pub(super) fn varint(&mut self) -> Option<u64> {
        let first = self.u8()?;
        let more = (1usize << (first >> 6)) - 1;
        let start = u64::from(first & 0x3f);
        Some(self.take(more)?.iter().fold(start, |value, &byte| value << 8 | u64::from(byte)))
    }

    pub(super) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    /// A vector after its length in one byte.
    pub(super) fn vector8(&mut self) -> Option<&'a [u8]> {
        let length = self.u8()?;
        self.take(length.into())
    }

    /// A vector after its length in two bytes.
    pub(super) fn vector16(&mut self) -> Option<&'a [u8]> {
        let length = self.u16()?;
        self.take(length.into())
    }

    /// A vector after its length as a variable-length integer.
    pub(super) fn vector_varint(&mut self) -> Option<&'a [u8]> {
        let length = self.varint()?;
        self.take(length.try_into().ok()?)
    }

    /// All that has not been read.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.0
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_up_to_the_end_and_no_further() {
        let mut cursor = Cursor::new(&[1, 2, 3, 2, 4, 5, 0, 1, 6]);
        assert_eq!(cursor.u8(), Some(1));
        assert_eq!(cursor.u16(), Some(0x0203));
        assert_eq!(cursor.vector8(), Some([4, 5].as_slice()));
        assert_eq!(cursor.vector16(), Some([6].as_slice()));
        assert!(cursor.is_empty());
        assert_eq!((cursor.u8(), cursor.u16(), cursor.take(1)), (None, None, None));
        assert_eq!((cursor.u32(), cursor.varint(), cursor.rest()), (None, None, [].as_slice()));
        assert_eq!(cursor.take(0), Some([].as_slice()));
    }

    /// The examples of RFC 9000 section A.1.
    #[test]
    fn variable_length_integers() {
        let check = |bytes: &[u8], expected| assert_eq!(Cursor::new(bytes).varint(), expected);
        check(&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c], Some(151_288_809_941_952_652));
        check(&[0x9d, 0x7f, 0x3e, 0x7d], Some(494_878_333));
        check(&[0x7b, 0xbd], Some(15_293));
        check(&[0x25], Some(37));
        check(&[0x40, 0x25], Some(37));
        check(&[0xff; 8], Some((1 << 62) - 1));
        for (first, length) in [(0, 1), (0x40, 2), (0x80, 4), (0xc0, 8)] {
            check(&[first; 8][..length], Some(Cursor::new(&[first; 8]).varint().unwrap()));
            check(&[first; 8][..length - 1], None);
        }
        assert_eq!(Cursor::new(&[0x40, 2, 8, 9]).vector_varint(), Some([8, 9].as_slice()));
        assert_eq!(Cursor::new(&[0x40, 3, 8, 9]).vector_varint(), None);
        assert_eq!(Cursor::new(&[0xff; 9]).vector_varint(), None);
    }

    #[test]
    fn a_vector_longer_than_what_is_left_is_none() {
        assert_eq!(Cursor::new(&[2, 1]).vector8(), None);
        assert_eq!(Cursor::new(&[0, 2, 1]).vector16(), None);
        assert_eq!(Cursor::new(&[0]).vector16(), None);
        assert_eq!(Cursor::new(&[255, 255, 1]).vector16(), None);
    }
}
