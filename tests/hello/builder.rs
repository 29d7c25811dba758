//! Makes ClientHellos: valid ones as clients send them, and malformed ones on purpose. Shared by
//! the tests beside the reader, those of this directory, and those of the whole program.

// Each test binary uses another part of it.
#![allow(dead_code)]

pub const SERVER_NAME: u16 = 0;
pub const ALPN: u16 = 16;
pub const PADDING: u16 = 21;
pub const SUPPORTED_VERSIONS: u16 = 43;
pub const KEY_SHARE: u16 = 51;
pub const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;

/// The longest fragment of a record.
pub const FRAGMENT_MAX: usize = 16_384;

/// A hello to be: fields as on the wire, extensions in order.
#[derive(Clone, Debug)]
pub struct Hello {
    pub version: u16,
    pub session: Vec<u8>,
    pub suites: Vec<u16>,
    pub compression: Vec<u8>,
    /// Types and contents; `None` leaves out the block of extensions itself.
    pub extensions: Option<Vec<(u16, Vec<u8>)>>,
}

impl Hello {
    /// One that a TLS 1.3 server would answer, without name or protocols.
    pub fn plain() -> Self {
        let key = (0x001du16, [7u8; 32]);
        let mut share = key.0.to_be_bytes().to_vec();
        share.extend(vector16(&key.1));
        Hello {
            version: 0x0303,
            session: vec![9; 32],
            suites: vec![0x1a1a, 0x1301, 0x1302, 0x1303, 0xc02b, 0xc02f],
            compression: vec![0],
            extensions: Some(vec![
                (0x2a2a, vec![]),
                (SUPPORTED_VERSIONS, vector8(&[0x3a, 0x3a, 3, 4, 3, 3])),
                (10, vector16(&[0x4a, 0x4a, 0, 29, 0, 23])),
                (13, vector16(&[4, 3, 8, 4, 4, 1, 8, 5, 5, 1])),
                (KEY_SHARE, vector16(&share)),
            ]),
        }
    }

    /// [`Hello::plain`] for `name`.
    pub fn to(name: &str) -> Self {
        Hello::plain().extension(SERVER_NAME, server_name(name.as_bytes()))
    }

    /// Adds an extension behind the others.
    pub fn extension(mut self, kind: u16, data: impl Into<Vec<u8>>) -> Self {
        self.extensions.get_or_insert_default().push((kind, data.into()));
        self
    }

    /// Adds the protocols offered.
    pub fn alpn<N: AsRef<[u8]>>(self, names: &[N]) -> Self {
        self.extension(ALPN, alpn(names))
    }

    /// Adds a key share as large as that of X25519MLKEM768.
    pub fn post_quantum(mut self) -> Self {
        let mut share = 0x11ecu16.to_be_bytes().to_vec();
        share.extend(vector16(&[5; 1216]));
        let extensions = self.extensions.get_or_insert_default();
        extensions.retain(|(kind, _)| *kind != KEY_SHARE);
        extensions.push((KEY_SHARE, vector16(&share)));
        self
    }

    /// Pads the message to `length` bytes (RFC 7685). In front, so that what is looked for comes
    /// last.
    pub fn padded_to(mut self, length: usize) -> Self {
        let missing = length.checked_sub(self.message().len() + 4).expect("longer already");
        self.extensions.get_or_insert_default().insert(0, (PADDING, vec![0; missing]));
        assert_eq!(self.message().len(), length);
        self
    }

    /// The handshake message, its header included.
    pub fn message(&self) -> Vec<u8> {
        let mut body = self.version.to_be_bytes().to_vec();
        body.extend([3; 32]);
        body.extend(vector8(&self.session));
        let suites: Vec<u8> = self.suites.iter().flat_map(|suite| suite.to_be_bytes()).collect();
        body.extend(vector16(&suites));
        body.extend(vector8(&self.compression));
        if let Some(extensions) = &self.extensions {
            let mut block = Vec::new();
            for (kind, data) in extensions {
                block.extend(kind.to_be_bytes());
                block.extend(vector16(data));
            }
            body.extend(vector16(&block));
        }
        handshake(1, &body)
    }

    /// The message in as few records as possible.
    pub fn bytes(&self) -> Vec<u8> {
        records(&self.message(), [])
    }
}

/// A handshake message of any type.
pub fn handshake(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap() << 8;
    let [high, middle, low, _] = length.to_be_bytes();
    [&[kind, high, middle, low], body].concat()
}

/// `message` in handshake records: fragments of `sizes` bytes first, full ones for the rest.
pub fn records(message: &[u8], sizes: impl IntoIterator<Item = usize>) -> Vec<u8> {
    let mut sizes = sizes.into_iter();
    let mut bytes = Vec::new();
    let mut rest = message;
    while !rest.is_empty() {
        let size = sizes.next().unwrap_or(FRAGMENT_MAX).min(rest.len());
        let (fragment, after) = rest.split_at(size);
        bytes.extend(record(22, fragment));
        rest = after;
    }
    bytes
}

/// One record.
pub fn record(kind: u8, fragment: &[u8]) -> Vec<u8> {
    [&[kind, 3, 1], vector16(fragment).as_slice()].concat()
}

/// The content of a server name extension with one host name.
pub fn server_name(name: &[u8]) -> Vec<u8> {
    server_names(&[(0, name)])
}

/// The content of a server name extension: names and their types.
pub fn server_names(names: &[(u8, &[u8])]) -> Vec<u8> {
    let list: Vec<u8> =
        names.iter().flat_map(|(kind, name)| [vec![*kind], vector16(name)].concat()).collect();
    vector16(&list)
}

/// The content of an ALPN extension.
pub fn alpn<N: AsRef<[u8]>>(names: &[N]) -> Vec<u8> {
    let list: Vec<u8> = names.iter().flat_map(|name| vector8(name.as_ref())).collect();
    vector16(&list)
}

pub fn vector8(content: &[u8]) -> Vec<u8> {
    [&[u8::try_from(content.len()).unwrap()], content].concat()
}

pub fn vector16(content: &[u8]) -> Vec<u8> {
    [u16::try_from(content.len()).unwrap().to_be_bytes().as_slice(), content].concat()
}
