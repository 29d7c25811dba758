//! The section `health` of a pool, written out again.

use serde::Serialize;

use super::{OffOr, Scalar, off_or, short, text};
use crate::config::health::Statuses;
use crate::config::quic_lb::hex;
use crate::config::{Exchange, HealthCheck, Http, Probe, Tls};

/// Keys that the type of check does not have are left out, as the file must.
#[derive(Serialize)]
pub(super) struct FileHealth<'a> {
    r#type: &'static str,
    port: Scalar,
    interval: String,
    fast_interval: String,
    timeout: String,
    rise: u32,
    fall: u32,
    #[serde(flatten)]
    probe: FileProbe<'a>,
}

impl<'a> FileHealth<'a> {
    pub(super) fn new(check: &'a HealthCheck) -> Self {
        FileHealth {
            r#type: check.probe.name(),
            port: match check.port {
                Some(port) => Scalar::Number(u64::from(port.get())),
                None => Scalar::Word("off"),
            },
            interval: short(check.interval),
            fast_interval: short(check.fast_interval),
            timeout: short(check.timeout),
            rise: check.rise,
            fall: check.fall,
            probe: FileProbe::new(&check.probe),
        }
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum FileProbe<'a> {
    Exchange(FileExchange),
    Tls(FileTls<'a>),
    Http(FileHttp<'a>),
}

impl<'a> FileProbe<'a> {
    fn new(probe: &'a Probe) -> Self {
        match probe {
            Probe::Tcp(exchange) | Probe::Udp(exchange) => {
                FileProbe::Exchange(FileExchange::new(exchange))
            }
            Probe::Tls(tls) => FileProbe::Tls(FileTls::new(tls)),
            Probe::Http(http) => FileProbe::Http(FileHttp::new(http)),
        }
    }
}

#[derive(Serialize)]
struct FileExchange {
    send: OffOr<FileBytes>,
    expect: OffOr<FileBytes>,
}

impl FileExchange {
    fn new(exchange: &Exchange) -> Self {
        FileExchange {
            send: off_or(exchange.send.as_deref(), FileBytes::new),
            expect: off_or(exchange.expect.as_deref(), FileBytes::new),
        }
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum FileBytes {
    Text(String),
    Hex { hex: String },
}

impl FileBytes {
    /// A text where it is one, and reads back as one.
    fn new(bytes: &[u8]) -> Self {
        let plain = |byte: &u8| matches!(byte, b' '..=b'~' | b'\r' | b'\n' | b'\t');
        match str::from_utf8(bytes) {
            Ok(text) if bytes.iter().all(plain) && text != "off" => FileBytes::Text(text.into()),
            _ => FileBytes::Hex { hex: hex(bytes) },
        }
    }
}

#[derive(Serialize)]
struct FileTls<'a> {
    sni: OffOr<&'a str>,
    verify: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ca_file: Option<String>,
}

impl<'a> FileTls<'a> {
    fn new(tls: &'a Tls) -> Self {
        FileTls {
            sni: off_or(tls.sni.as_deref(), |name| name),
            verify: if tls.ca_file.is_some() { "on" } else { "off" },
            ca_file: tls.ca_file.as_ref().map(|path| text(&path.display())),
        }
    }
}

#[derive(Serialize)]
struct FileHttp<'a> {
    path: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<&'a str>,
    expect: String,
    tls: bool,
    #[serde(flatten)]
    handshake: Option<FileTls<'a>>,
}

impl<'a> FileHttp<'a> {
    fn new(http: &'a Http) -> Self {
        FileHttp {
            path: &http.path,
            host: http.host.as_deref(),
            expect: text(&Statuses(&http.expect)),
            tls: http.tls.is_some(),
            handshake: http.tls.as_ref().map(FileTls::new),
        }
    }
}
