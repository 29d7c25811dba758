//! Host names as they are compared: A-labels in lower case, without the trailing dot.

use std::net::{IpAddr, Ipv6Addr};
use std::str;

/// The most bytes of a name, without a trailing dot (RFC 1035 section 3.1: 255 with the lengths of
/// the first label and of the root).
pub const NAME_MAX: usize = 253;

/// The most bytes of a label (RFC 1035 section 2.3.4).
pub const LABEL_MAX: usize = 63;

/// A valid host name, or the literal that stands in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// Letters, digits, hyphens, underscores and dots; lower case, no dot at the end.
    Name(Box<str>),
    /// An IPv4 or IPv6 address in text.
    Ip(IpAddr),
}

/// Why bytes are not a host name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum NameFault {
    /// No byte, or a dot alone.
    #[error("the name is empty")]
    Empty,
    /// Longer than [`NAME_MAX`].
    #[error("the name has more than {NAME_MAX} bytes")]
    TooLong,
    /// Two dots in a row, or one in front.
    #[error("a label of the name is empty")]
    EmptyLabel,
    /// A label longer than [`LABEL_MAX`].
    #[error("a label of the name has more than {LABEL_MAX} bytes")]
    LabelTooLong,
    /// NUL, a space, a byte outside of ASCII, or another that no name has.
    #[error("the name has a character other than letters, digits, `-`, `_` and `.`")]
    Character,
}

/// Reads a name that is all ASCII. Case and one trailing dot do not count.
///
/// Labels are those of RFC 1123 section 2.1, wider by what the field uses: underscores, and hyphens
/// anywhere. An A-label is not decoded.
pub fn parse(bytes: &[u8]) -> Result<Host, NameFault> {
    let name = bytes.strip_suffix(b".").unwrap_or(bytes);
    if name.is_empty() {
        return Err(NameFault::Empty);
    }
    if let Some(ip) = ip_literal(name) {
        return Ok(Host::Ip(ip));
    }
    if name.len() > NAME_MAX {
        return Err(NameFault::TooLong);
    }
    for label in name.split(|&byte| byte == b'.') {
        if label.is_empty() {
            return Err(NameFault::EmptyLabel);
        }
        if !label.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte)) {
            return Err(NameFault::Character);
        }
        if label.len() > LABEL_MAX {
            return Err(NameFault::LabelTooLong);
        }
    }
    let mut name = str::from_utf8(name).map_err(|_| NameFault::Character)?.to_owned();
    name.make_ascii_lowercase();
    Ok(Host::Name(name.into()))
}

/// RFC 6066 section 3 forbids literals as names; clients send them all the same, IPv6 ones also in
/// the brackets of a URL.
fn ip_literal(name: &[u8]) -> Option<IpAddr> {
    // Most names: no literal ends in a letter beyond `f`, save those in brackets.
    let last = name.last()?;
    if !last.is_ascii_hexdigit() && !b"]:".contains(last) {
        return None;
    }
    let text = str::from_utf8(name).ok()?;
    match text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        Some(inner) => inner.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Result<Host, NameFault> {
        Ok(Host::Name(text.into()))
    }

    #[test]
    fn names() {
        let check = |input: &str, expected: &str| {
            assert_eq!(parse(input.as_bytes()), name(expected), "{input}");
        };
        check("example.com", "example.com");
        check("ExAmPlE.CoM", "example.com");
        check("example.com.", "example.com");
        check("localhost", "localhost");
        check("_dmarc.my_host.example", "_dmarc.my_host.example");
        check("-a-.b", "-a-.b");
        check("XN--BCHER-KVA.example", "xn--bcher-kva.example");
        check("1.2.3.4.5", "1.2.3.4.5");
        check("256.1.1.1", "256.1.1.1");
        check("127.1", "127.1");
        check("dead.beef", "dead.beef");
        let longest_label = "a".repeat(LABEL_MAX);
        check(&longest_label, &longest_label);
        let longest = format!("{}{}", "a.".repeat(126), "a");
        assert_eq!(longest.len(), NAME_MAX);
        check(&longest, &longest);
        check(&format!("{longest}."), &longest);
    }

    #[test]
    fn literals() {
        for text in ["10.0.0.1", "2001:db8::1", "::", "::ffff:1.2.3.4", "fe80::A"] {
            let ip = Ok(Host::Ip(text.parse().unwrap()));
            assert_eq!(parse(text.as_bytes()), ip, "{text}");
            assert_eq!(parse(format!("{text}.").as_bytes()), ip, "{text}");
        }
        assert_eq!(parse(b"[2001:db8::1]"), Ok(Host::Ip("2001:db8::1".parse().unwrap())));
        assert_eq!(parse(b"[10.0.0.1]"), Err(NameFault::Character));
        assert_eq!(parse(b"[]"), Err(NameFault::Character));
    }

    #[test]
    fn refused() {
        use NameFault::*;
        let check = |input: &[u8], expected| {
            assert_eq!(parse(input), Err(expected), "{}", input.escape_ascii());
        };
        check(b"", Empty);
        check(b".", Empty);
        check(b"..", EmptyLabel);
        check(b".example.com", EmptyLabel);
        check(b"a..b", EmptyLabel);
        check(b"example.com..", EmptyLabel);
        check("a".repeat(64).as_bytes(), LabelTooLong);
        check(format!("{}aa", "a.".repeat(126)).as_bytes(), TooLong);
        check(&[b'a'; 65_000], TooLong);
        for byte in (0..=255u8).filter(|byte| !byte.is_ascii_alphanumeric()) {
            if !b"-_.".contains(&byte) {
                check(&[b'a', byte, b'b', b'.', b'c'], Character);
            }
        }
        check("bücher.example".as_bytes(), Character);
        check(b"*.example.com", Character);
        check(b"example.com\0.evil.com", Character);
        check(b"example.com:443", Character);
    }
}
