//! The application protocols that a client offers (RFC 7301).

use std::fmt;

use super::cursor::Cursor;

/// Protocol names in the order of the client's preference; empty where it offers none.
///
/// Names are opaque bytes, 1 to 255 each. Kept as they are on the wire, each after its length, so
/// that any number of them is one allocation.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Alpn(Box<[u8]>);

/// Why a list of names is not an ALPN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AlpnError {
    /// A name without any byte, or one too long for its length prefix.
    #[error("an ALPN protocol name has 1 to 255 bytes")]
    NameLength,
}

impl Alpn {
    /// The list of these names, for a request that no client sent (`explain`, tests).
    pub fn from_names<N: AsRef<[u8]>>(
        names: impl IntoIterator<Item = N>,
    ) -> Result<Self, AlpnError> {
        let mut list = Vec::new();
        for name in names {
            let name = name.as_ref();
            let length = u8::try_from(name.len()).ok().filter(|&length| length > 0);
            list.push(length.ok_or(AlpnError::NameLength)?);
            list.extend_from_slice(name);
        }
        Ok(Alpn(list.into()))
    }

    /// The content of a `ProtocolNameList` without its own length (RFC 7301 section 3.1); `None`
    /// if it is empty, or a name is empty or runs past the end.
    pub(super) fn from_wire(list: &[u8]) -> Option<Self> {
        let mut names = Cursor::new(list);
        loop {
            names.vector8().filter(|name| !name.is_empty())?;
            if names.is_empty() {
                return Some(Alpn(list.into()));
            }
        }
    }

    /// The first names that fit into `bytes`, the length byte of each included.
    pub fn at_most(&self, bytes: usize) -> Self {
        let ends = self.iter().scan(0, |end, name| {
            *end += 1 + name.len();
            Some(*end)
        });
        let end = ends.take_while(|end| *end <= bytes).last().unwrap_or(0);
        Alpn(self.0.get(..end).unwrap_or_default().into())
    }

    /// Whether nothing is offered.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The names.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> + '_ {
        let mut names = Cursor::new(&self.0);
        std::iter::from_fn(move || names.vector8())
    }

    /// Whether `name` is offered.
    pub fn offers(&self, name: &[u8]) -> bool {
        self.iter().any(|offered| offered == name)
    }
}

/// A list of the names, bytes outside of ASCII escaped.
impl fmt::Debug for Alpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|name| name.escape_ascii().to_string())).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        let check = |names: &[&[u8]], wire: &[u8]| {
            let alpn = Alpn::from_names(names).unwrap();
            assert_eq!(alpn.iter().collect::<Vec<_>>(), names);
            assert_eq!(alpn.is_empty(), names.is_empty());
            assert!(names.iter().all(|name| alpn.offers(name)), "{alpn:?}");
            assert!(!alpn.offers(b"h") && !alpn.offers(b""), "{alpn:?}");
            let read = Alpn::from_wire(wire);
            assert_eq!(read, (!names.is_empty()).then_some(alpn));
        };
        check(&[], b"");
        check(&[b"h2"], b"\x02h2");
        check(&[b"h2", b"http/1.1"], b"\x02h2\x08http/1.1");
        check(&[b"\0", b"\xff\xfe"], b"\x01\0\x02\xff\xfe");
    }

    #[test]
    fn the_first_names_that_fit() {
        let alpn = Alpn::from_names(["h2", "http/1.1"]).unwrap();
        for (bytes, names) in [(0, 0), (2, 0), (3, 1), (11, 1), (12, 2), (99, 2)] {
            let first = alpn.at_most(bytes);
            assert_eq!(first.iter().count(), names, "{bytes}");
            assert!(first.iter().zip(alpn.iter()).all(|(a, b)| a == b));
        }
    }

    #[test]
    fn refused_lists() {
        for wire in [b"\0".as_slice(), b"\x02h2\0", b"\0\x02h2", b"\x03h2", b"\x02h2\x01"] {
            assert_eq!(Alpn::from_wire(wire), None, "{wire:?}");
        }
        assert_eq!(Alpn::from_names([""]), Err(AlpnError::NameLength));
        assert_eq!(Alpn::from_names(["h2", ""]), Err(AlpnError::NameLength));
        assert_eq!(Alpn::from_names([[0; 256]]), Err(AlpnError::NameLength));
        assert!(Alpn::from_names([[0; 255]]).is_ok());
    }
}
