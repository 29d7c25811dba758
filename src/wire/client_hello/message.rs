//! The ClientHello message itself (RFC 8446 section 4.1.2, and RFC 5246 section 7.4.1.2, which it
//! agrees with as far as this goes).

use super::super::cursor::Cursor;
use super::super::host_name::{self, Host};
use super::{Alpn, ClientHello, Reason};

/// Bytes before the body of a handshake message: type and length.
pub(super) const HEADER: usize = 4;

/// The handshake type of a ClientHello.
pub(super) const CLIENT_HELLO: u8 = 1;

// Extensions (RFC 8446 section 4.2; RFC 9849 for the last).
const SERVER_NAME: u16 = 0;
const ALPN: u16 = 16;
const SUPPORTED_VERSIONS: u16 = 43;
const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;

/// The type of a server name that is a host name (RFC 6066 section 3).
const HOST_NAME: u8 = 0;

/// Reads a whole handshake message, its header included: what a TLS client sends in records, and
/// a QUIC client in CRYPTO frames.
///
/// The message must be exactly as long as its header says. The random, session, suites and
/// extensions other than the four above are opaque here: only that they are where their lengths
/// say is checked.
pub fn read_message(message: &[u8]) -> Result<ClientHello, Reason> {
    let &[kind, high, middle, low, ref body @ ..] = message else {
        return Err(Reason::Length);
    };
    if kind != CLIENT_HELLO {
        return Err(Reason::NotClientHello);
    }
    if body.len() != u32::from_be_bytes([0, high, middle, low]) as usize {
        return Err(Reason::Length);
    }
    // Reads everything up to the extensions. It takes an overrunning block of extensions for none,
    // and leaves it as a remainder.
    let (rest, hello) =
        tls_parser::parse_tls_handshake_client_hello(body).map_err(|_| Reason::Length)?;
    if !rest.is_empty() {
        return Err(Reason::Length);
    }
    if hello.ciphers.is_empty() || hello.comp.is_empty() {
        return Err(Reason::EmptyList);
    }
    let mut found = ClientHello {
        sni: None,
        alpn: Alpn::default(),
        versions: [hello.version.0].into(),
        ech: false,
    };
    // tls-parser stops at the first extension that it cannot read and ignores what follows; here
    // that would be a name overlooked.
    extensions(hello.ext.unwrap_or_default(), &mut found)?;
    Ok(found)
}

fn extensions(block: &[u8], found: &mut ClientHello) -> Result<(), Reason> {
    let mut extensions = Cursor::new(block);
    let mut seen = Seen::new();
    while !extensions.is_empty() {
        let kind = extensions.u16().ok_or(Reason::Length)?;
        let data = extensions.vector16().ok_or(Reason::Length)?;
        if !seen.insert(kind) {
            return Err(Reason::DuplicateExtension);
        }
        match kind {
            SERVER_NAME => found.sni = server_name(data)?,
            ALPN => found.alpn = alpn(data)?,
            SUPPORTED_VERSIONS => found.versions = supported_versions(data)?,
            ENCRYPTED_CLIENT_HELLO => found.ech = true,
            _ => {}
        }
    }
    Ok(())
}

/// The host name in a `ServerNameList`; `None` where it is an IP literal.
fn server_name(data: &[u8]) -> Result<Option<Box<str>>, Reason> {
    let mut names = Cursor::new(whole(Cursor::new(data).vector16(), data, 2)?);
    let kind = names.u8().ok_or(Reason::Length)?;
    if kind != HOST_NAME {
        // None other was ever defined, and OpenSSL refuses such a list too.
        return Err(Reason::NameType);
    }
    let name = names.vector16().ok_or(Reason::Length)?;
    if !names.is_empty() {
        return Err(Reason::SeveralNames);
    }
    match host_name::parse(name).map_err(Reason::Name)? {
        Host::Name(name) => Ok(Some(name)),
        Host::Ip(_) => Ok(None),
    }
}

fn alpn(data: &[u8]) -> Result<Alpn, Reason> {
    let list = whole(Cursor::new(data).vector16(), data, 2)?;
    Alpn::from_wire(list).ok_or(Reason::Alpn)
}

fn supported_versions(data: &[u8]) -> Result<Box<[u16]>, Reason> {
    let list = whole(Cursor::new(data).vector8(), data, 1)?;
    let (versions, rest) = list.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(Reason::Length);
    }
    if versions.is_empty() {
        return Err(Reason::EmptyList);
    }
    Ok(versions.iter().map(|&version| u16::from_be_bytes(version)).collect())
}

/// The content of the vector that `data` consists of, with nothing after it; its length takes
/// `prefix` bytes.
fn whole<'a>(content: Option<&'a [u8]>, data: &[u8], prefix: usize) -> Result<&'a [u8], Reason> {
    content.filter(|content| content.len() + prefix == data.len()).ok_or(Reason::Length)
}

/// Types of extensions seen: one bit each, since a client may send thousands of them.
struct Seen([u64; 1024]);

impl Seen {
    fn new() -> Self {
        Seen([0; 1024])
    }

    /// Whether `kind` is new.
    fn insert(&mut self, kind: u16) -> bool {
        let bit = 1 << (kind % 64);
        let Some(word) = self.0.get_mut(usize::from(kind / 64)) else {
            return false;
        };
        let new = *word & bit == 0;
        *word |= bit;
        new
    }
}
