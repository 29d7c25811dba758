//! Our reading of a hello, and tls-parser's to compare it with.

use std::net::IpAddr;

use pointsman::wire::ClientHello;
use pointsman::wire::client_hello::{Answer, Reader};
use tls_parser::{SNIType, TlsExtension};

pub const MAX: usize = 64 * 1024;

/// Name, as [`ClientHello::sni`] has it, and protocols.
pub type Reading = (Option<String>, Vec<Vec<u8>>);

/// The answer to all bytes at once.
pub fn read(bytes: &[u8]) -> Answer {
    Reader::new(MAX).advance(bytes)
}

/// The answer to `bytes` arriving up to each of the `ends` in turn, and then whole.
pub fn read_split(bytes: &[u8], ends: impl IntoIterator<Item = usize>, max: usize) -> Answer {
    let mut reader = Reader::new(max);
    for end in ends {
        let answer = reader.advance(&bytes[..end]);
        if answer != Answer::NeedMore {
            // Final: what else arrives does not change it.
            assert_eq!(reader.advance(bytes), answer);
            return answer;
        }
    }
    reader.advance(bytes)
}

pub fn reading(hello: &ClientHello) -> Reading {
    let name = hello.sni.as_deref().map(str::to_owned);
    (name, hello.alpn.iter().map(<[u8]>::to_vec).collect())
}

/// What tls-parser finds in the fragments of all records put together. It is more lenient: this
/// is what must agree *if* the hello is accepted.
pub fn tls_parser(bytes: &[u8]) -> Option<Reading> {
    let mut stream = Vec::new();
    let mut rest = bytes;
    while rest.len() >= 5 && rest[0] == 22 {
        let length = usize::from(u16::from_be_bytes([rest[3], rest[4]])).min(rest.len() - 5);
        stream.extend_from_slice(&rest[5..5 + length]);
        rest = &rest[5 + length..];
    }
    let length = u32::from_be_bytes([0, *stream.get(1)?, *stream.get(2)?, *stream.get(3)?]);
    let body = stream.get(4..4 + length as usize)?;
    let (_, hello) = tls_parser::parse_tls_handshake_client_hello(body).ok()?;
    let mut block = hello.ext.unwrap_or_default();
    let mut found = (None, Vec::new());
    // One by one: all at once, tls-parser ends at the first whose content it does not like.
    while let [kind_high, kind_low, high, low, rest @ ..] = block {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let (data, after) = rest.split_at_checked(length)?;
        match (kind_high, kind_low) {
            (0, 0) => match tls_parser::parse_tls_extension_sni_content(data).ok()?.1 {
                TlsExtension::SNI(names) => {
                    let (_, name) = names.iter().find(|(kind, _)| *kind == SNIType::HostName)?;
                    found.0 = normal(name);
                }
                other => panic!("{other:?}"),
            },
            (0, 16) => match tls_parser::parse_tls_extension_alpn_content(data).ok()?.1 {
                TlsExtension::ALPN(names) => {
                    found.1 = names.iter().map(|name| name.to_vec()).collect()
                }
                other => panic!("{other:?}"),
            },
            _ => {}
        }
        block = after;
    }
    Some(found)
}

/// A name as we have it: no case, no dot at the end, no IP literal.
pub fn normal(name: &[u8]) -> Option<String> {
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    let name = name.strip_suffix('.').unwrap_or(&name);
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    bare.parse::<IpAddr>().is_err().then(|| name.to_owned())
}
