//! Reading integers and length-prefixed vectors, as in the presentation language of TLS (RFC 8446
//! section 3). Nothing here can read past the end: what is not there is `None`.

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
        assert_eq!(cursor.take(0), Some([].as_slice()));
    }

    #[test]
    fn a_vector_longer_than_what_is_left_is_none() {
        assert_eq!(Cursor::new(&[2, 1]).vector8(), None);
        assert_eq!(Cursor::new(&[0, 2, 1]).vector16(), None);
        assert_eq!(Cursor::new(&[0]).vector16(), None);
        assert_eq!(Cursor::new(&[255, 255, 1]).vector16(), None);
    }
}
