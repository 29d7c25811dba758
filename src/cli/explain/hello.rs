//! What a client sends first, said or as bytes, and what a listener makes of it.

use crate::config::{OnTimeout, Preread, Protocol};
use crate::limits::PREREAD_DATAGRAMS;
use crate::state::Termination;
use crate::wire::client_hello::{Answer, Reader};
use crate::wire::quic::initial::{self, InitialReader};
use crate::wire::{Alpn, ClientHello};

/// What the client sends.
#[derive(Debug)]
pub enum Sent {
    /// A hello that says this.
    Said { sni: Option<Box<str>>, alpn: Alpn },
    /// These bytes: a beginning of a connection, or the datagrams of a flow.
    Bytes { parts: Vec<Vec<u8>>, from: String },
}

/// What routing knows of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Known {
    pub sni: Option<Box<str>>,
    pub alpn: Alpn,
    /// Whether it is TLS, so that an alert would be understood.
    pub tls: bool,
}

/// The line about what was read, and what routing knows then; `None` where the connection is
/// closed before it.
pub fn read(
    sent: &Sent,
    protocol: Protocol,
    reads_hello: bool,
    limits: &Preread,
) -> (String, Option<Known>) {
    let (parts, from) = match sent {
        Sent::Said { sni, alpn } => {
            let known = Known { sni: sni.clone(), alpn: alpn.clone(), tls: true };
            return (
                format!("sni {}, alpn {}", name(sni.as_deref()), protocols(alpn)),
                Some(known),
            );
        }
        Sent::Bytes { parts, from } => (parts, from),
    };
    let (line, known) = match protocol {
        Protocol::Tcp => stream(&parts.concat(), limits),
        Protocol::Udp => datagrams(parts, limits),
    };
    let line = format!("{from}: {line}");
    if reads_hello {
        return (line, known);
    }
    // As the data plane does: it does not even look.
    (format!("{line}\n          (not read here: nothing asks for it)"), Some(Known::default()))
}

fn stream(bytes: &[u8], limits: &Preread) -> (String, Option<Known>) {
    match Reader::new(limits.max_bytes).advance(bytes) {
        Answer::Hello(hello) => whole(hello),
        Answer::NotTls => ("not TLS: neither sni nor alpn".to_owned(), Some(Known::default())),
        Answer::Reject(reason) => {
            closed(&format!("rejected: {reason}"), Termination::PrereadInvalid)
        }
        Answer::TooLarge => closed("larger than `max_bytes`", Termination::PrereadTooLarge),
        Answer::NeedMore if bytes.is_empty() && limits.on_timeout == OnTimeout::Default => {
            ("nothing sent: routed as not TLS after `timeout`".to_owned(), Some(Known::default()))
        }
        Answer::NeedMore => closed("incomplete", Termination::PrereadTimeout),
    }
}

fn datagrams(datagrams: &[Vec<u8>], limits: &Preread) -> (String, Option<Known>) {
    let mut reader = InitialReader::new(limits.max_bytes);
    let answers = datagrams.iter().take(PREREAD_DATAGRAMS).map(|datagram| reader.push(datagram));
    match answers.last().unwrap_or(initial::Answer::NeedMore) {
        initial::Answer::Hello(hello) => whole(hello),
        initial::Answer::NotQuic => {
            ("opens no QUIC connection: neither sni nor alpn".to_owned(), Some(Known::default()))
        }
        initial::Answer::UnknownVersion => {
            ("QUIC of an unknown version: neither sni nor alpn".to_owned(), Some(Known::default()))
        }
        initial::Answer::Reject(reason) => {
            closed(&format!("rejected: {reason}"), Termination::PrereadInvalid)
        }
        initial::Answer::TooLarge => {
            closed("larger than `max_bytes`", Termination::PrereadTooLarge)
        }
        initial::Answer::NeedMore if datagrams.len() > PREREAD_DATAGRAMS => {
            closed("in too many datagrams", Termination::PrereadTooLarge)
        }
        initial::Answer::NeedMore => {
            closed("incomplete: give --hello for each datagram", Termination::PrereadTimeout)
        }
    }
}

fn whole(hello: ClientHello) -> (String, Option<Known>) {
    (describe(&hello), Some(Known { sni: hello.sni, alpn: hello.alpn, tls: true }))
}

fn closed(why: &str, termination: Termination) -> (String, Option<Known>) {
    (format!("{why} ({})", termination.name()), None)
}

fn describe(hello: &ClientHello) -> String {
    let versions: Vec<String> =
        hello.versions.iter().map(|version| self::version(*version)).collect();
    let (sni, alpn) = (name(hello.sni.as_deref()), protocols(&hello.alpn));
    let ech = if hello.ech { "yes or GREASE, so the name may be an outer one" } else { "no" };
    format!("sni {sni}, alpn {alpn}, versions {}, ech {ech}", versions.join(" "))
}

fn version(version: u16) -> String {
    match version {
        0x0300 => "SSL3.0".to_owned(),
        0x0301..=0x0304 => format!("TLS1.{}", version - 0x0301),
        // RFC 8701: both bytes alike, and their low halves 0xA.
        _ if version & 0x0f0f == 0x0a0a && version >> 8 == version & 0xff => "GREASE".to_owned(),
        _ => format!("{version:#06x}"),
    }
}

fn name(sni: Option<&str>) -> &str {
    sni.unwrap_or("none")
}

fn protocols(alpn: &Alpn) -> String {
    let names: Vec<String> = alpn.iter().map(|name| name.escape_ascii().to_string()).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(" ") }
}
