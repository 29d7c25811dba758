//! The forms of an access log record: one line each, with no byte in it that could start another
//! line or drive a terminal.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use serde::ser::Serializer;
use serde_json::ser::{CharEscape, CompactFormatter};

use crate::address::Address;
use crate::config::LogFormat;
use crate::state::{Attempt, Record};

/// Appends `record` and a newline.
pub(super) fn encode(out: &mut Vec<u8>, record: &Record, format: LogFormat) {
    let result = match format {
        LogFormat::Json => json_record(out, record),
        LogFormat::Text => text(out, record),
    };
    result.expect("writing to a Vec cannot fail");
    out.push(b'\n');
}

/// RFC 3339, to the millisecond.
pub(super) fn timestamp(time: SystemTime) -> String {
    // A clock outside of the years -9999 to 9999 is not worth an error.
    jiff::Timestamp::try_from(time).map(|time| format!("{time:.3}")).unwrap_or_default()
}

/// The keys and their order are the contract's.
fn json_record(out: &mut Vec<u8>, record: &Record) -> io::Result<()> {
    let hello = record.hello.as_ref();
    field(out, r#"{"time":"#, Plain(timestamp(record.started)))?;
    field(out, r#","id":"#, Id(record.id))?;
    field(out, r#","listener":"#, &*record.listener)?;
    field(out, r#","protocol":"#, record.protocol.name())?;
    field(out, r#","client":"#, record.client.map(Plain))?;
    field(out, r#","peer":"#, None::<&str>)?;
    field(out, r#","local":"#, &record.local)?;
    field(out, r#","sni":"#, hello.and_then(|hello| hello.sni.as_deref()))?;
    field(out, r#","alpn":"#, protocols(record).as_deref())?;
    field(out, r#","pool":"#, record.pool.as_deref())?;
    field(out, r#","backend":"#, record.backend.as_deref())?;
    field(out, r#","attempts":"#, record.attempts.as_slice())?;
    field(out, r#","preread_ms":"#, record.preread)?;
    field(out, r#","connect_ms":"#, record.connect)?;
    field(out, r#","first_byte_ms":"#, record.first_byte)?;
    field(out, r#","duration_ms":"#, record.duration)?;
    field(out, r#","bytes_in":"#, record.bytes_in)?;
    field(out, r#","bytes_out":"#, record.bytes_out)?;
    field(out, r#","termination":"#, record.termination.name())?;
    out.push(b'}');
    Ok(())
}

fn field(out: &mut Vec<u8>, key: &str, value: impl Json) -> io::Result<()> {
    out.extend_from_slice(key.as_bytes());
    value.json(out)
}

/// To the microsecond.
fn milliseconds(out: &mut Vec<u8>, duration: Duration) {
    let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    // With a digit before those after the point, that keeps their zeros.
    let (whole, rest) = (micros / 1000, 1000 + micros % 1000);
    let mut digits = itoa::Buffer::new();
    out.extend_from_slice(digits.format(whole).as_bytes());
    out.push(b'.');
    out.extend_from_slice(&digits.format(rest).as_bytes()[1..]);
}

/// The protocols that a hello offers, `None` without hello. Names are bytes: what is not UTF-8 in
/// them is shown as `\x` and two hex digits.
fn protocols(record: &Record) -> Option<Vec<Cow<'_, str>>> {
    let hello = record.hello.as_ref()?;
    let name = |name| match str::from_utf8(name) {
        Ok(text) => text.into(),
        Err(_) => name.escape_ascii().to_string().into(),
    };
    Some(hello.alpn.iter().map(name).collect())
}

/// What a record has in it, as JSON. Records are written by hand, in two thirds of the time: serde
/// looks at each byte of a string by itself, and finds the shortest of all numbers that are the same.
trait Json {
    fn json(&self, out: &mut Vec<u8>) -> io::Result<()>;
}

impl<T: Json + ?Sized> Json for &T {
    fn json(&self, out: &mut Vec<u8>) -> io::Result<()> {
        (**self).json(out)
    }
}

impl<T: Json> Json for Option<T> {
    fn json(&self, out: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Some(value) => value.json(out),
            None => out.write_all(b"null"),
        }
    }
}

impl<T: Json> Json for [T] {
    fn json(&self, out: &mut Vec<u8>) -> io::Result<()> {
        out.push(b'[');
        for (index, value) in self.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            value.json(out)?;
        }
        out.push(b']');
        Ok(())
    }
}

impl Json for str {
    fn json(&self, out: &mut Vec<u8>) -> io::Result<()> {
        // Nearly all there is. Without an early end the compiler looks at many bytes at a time.
        let is_odd = |byte: u8| !matches!(byte, b' '..=b'~') || byte == b'"' || byte == b'\\';
        if !self.bytes().fold(false, |odd, byte| odd | is_odd(byte)) {
            out.push(b'"');
            out.extend_from_slice(self.as_bytes());
            out.push(b'"');
            return Ok(());
        }
        serde_json::Serializer::with_formatter(out, NoControls).serialize_str(self)?;
        Ok(())
    }
}

impl Json for Cow<'_, str> {
    fn json(&self, out: &mut Vec<u8>) -> io::Result<()> {
        (**self).json(out)
    }
}

/// A text that has nothing to escape in it.
struct Plain<T>(T);

impl<T: Display> Json for Plain<T> {
    fn json(&self, out: &mut Vec<u8>) -> io::Result<()> {
        write!(out, "\"{}\"", self.0)
    }
}

impl Json for Address {
    fn json(&self, out: &mut Vec<u8>) -> io::Result<()> {
        match self.ip() {
            Some(address) => Plain(address).json(out),
            None => self.to_string().as_str().json(out),
        }
    }
}

struct Id(u64);

impl Json for Id {
    fn json(&self, out: &mut Vec<u8>) -> io::Result<()> {
        out.push(b'"');
        let digits = self.0.to_be_bytes().into_iter().flat_map(|byte| [byte >> 4, byte & 15]);
        out.extend(digits.map(|digit| b"0123456789abcdef"[usize::from(digit)]));
        out.push(b'"');
        Ok(())
    }
}

impl Json for u64 {
    fn json(&self, out: &mut Vec<u8>) -> io::Result<()> {
        out.extend_from_slice(itoa::Buffer::new().format(*self).as_bytes());
        Ok(())
    }
}

impl Json for Duration {
    fn json(&self, out: &mut Vec<u8>) -> io::Result<()> {
        milliseconds(out, *self);
        Ok(())
    }
}

impl Json for Attempt {
    fn json(&self, out: &mut Vec<u8>) -> io::Result<()> {
        field(out, r#"{"backend":"#, &*self.backend)?;
        field(out, r#","outcome":"#, self.outcome.name())?;
        field(out, r#","ms":"#, self.took)?;
        out.push(b'}');
        Ok(())
    }
}

/// JSON allows DEL and the C1 controls in strings; terminals act on them, so we escape them too.
struct NoControls;

impl serde_json::ser::Formatter for NoControls {
    fn write_string_fragment<W: Write + ?Sized>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(at) = rest.find(char::is_control) {
            let (plain, tail) = rest.split_at(at);
            let mut chars = tail.chars();
            let control = chars.next().map_or(0, u32::from);
            writer.write_all(plain.as_bytes())?;
            write!(writer, "\\u{control:04x}")?;
            rest = chars.as_str();
        }
        writer.write_all(rest.as_bytes())
    }

    fn write_char_escape<W: Write + ?Sized>(
        &mut self,
        writer: &mut W,
        escape: CharEscape,
    ) -> io::Result<()> {
        serde_json::ser::Formatter::write_char_escape(&mut CompactFormatter, writer, escape)
    }
}

/// `key=value` with the same keys in the same order; `-` where unknown.
fn text(out: &mut Vec<u8>, record: &Record) -> io::Result<()> {
    write!(out, "time={} id={:016x} listener=", timestamp(record.started), record.id)?;
    word(out, Some(&record.listener))?;
    write!(out, " protocol={} client=", record.protocol.name())?;
    word(out, record.client.map(|client| client.to_string()).as_deref())?;
    out.extend_from_slice(b" peer=- local=");
    word(out, Some(&record.local.to_string()))?;
    out.extend_from_slice(b" sni=");
    word(out, record.hello.as_ref().and_then(|hello| hello.sni.as_deref()))?;
    out.extend_from_slice(b" alpn=");
    let protocols = protocols(record).map(|names| names.join(","));
    word(out, protocols.as_deref().filter(|list| !list.is_empty()))?;
    out.extend_from_slice(b" pool=");
    word(out, record.pool.as_deref())?;
    out.extend_from_slice(b" backend=");
    word(out, record.backend.as_deref())?;
    out.extend_from_slice(b" attempts=");
    word(out, attempts(record).as_deref())?;
    for (key, value) in [
        ("preread_ms", record.preread),
        ("connect_ms", record.connect),
        ("first_byte_ms", record.first_byte),
        ("duration_ms", Some(record.duration)),
    ] {
        match value {
            Some(value) => {
                write!(out, " {key}=")?;
                milliseconds(out, value);
            }
            None => write!(out, " {key}=-")?,
        }
    }
    write!(
        out,
        " bytes_in={} bytes_out={} termination={}",
        record.bytes_in,
        record.bytes_out,
        record.termination.name()
    )
}

fn attempts(record: &Record) -> Option<String> {
    let mut list = Vec::new();
    for (index, attempt) in record.attempts.iter().enumerate() {
        let comma = if index > 0 { "," } else { "" };
        write!(list, "{comma}{}:{}:", attempt.backend, attempt.outcome.name()).ok()?;
        milliseconds(&mut list, attempt.took);
    }
    String::from_utf8(list).ok().filter(|list| !list.is_empty())
}

/// One value: bare if it cannot be mistaken, else quoted as in JSON.
fn word(out: &mut Vec<u8>, value: Option<&str>) -> io::Result<()> {
    let Some(value) = value else {
        out.push(b'-');
        return Ok(());
    };
    let odd = |c: char| c.is_control() || c.is_whitespace() || matches!(c, '"' | '=' | '\\');
    if value.is_empty() || value == "-" || value.contains(odd) {
        return value.json(out);
    }
    out.extend_from_slice(value.as_bytes());
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::config::Protocol;
    use crate::state::{Asked, AttemptOutcome, ConnectFailure, Termination};
    use crate::wire::Alpn;

    /// A record with something in every field.
    pub(in crate::observe) fn record() -> Record {
        Record {
            started: SystemTime::UNIX_EPOCH + Duration::from_millis(1_753_000_000_123),
            id: 0xabc,
            listener: "edge".into(),
            protocol: Protocol::Tcp,
            client: Some("192.0.2.1:5000".parse().unwrap()),
            local: "[2001:db8::1]:443".parse().unwrap(),
            hello: Some(Asked {
                sni: Some("shop.example.com".into()),
                alpn: Alpn::from_names([b"h2".as_slice(), b"\xff\n"]).unwrap(),
            }),
            preread: Some(Duration::from_micros(2500)),
            pool: Some("www".into()),
            backend: Some("b2".into()),
            attempts: vec![
                Attempt {
                    backend: "b1".into(),
                    outcome: AttemptOutcome::Failed(ConnectFailure::Refused),
                    took: Duration::from_micros(412),
                },
                Attempt {
                    backend: "b2".into(),
                    outcome: AttemptOutcome::Connected,
                    took: Duration::from_nanos(1_000_999),
                },
            ],
            connect: Some(Duration::from_micros(1412)),
            first_byte: None,
            duration: Duration::from_secs(2),
            bytes_in: 1,
            bytes_out: u64::MAX,
            termination: Termination::ClientClosed,
        }
    }

    fn line(record: &Record, format: LogFormat) -> String {
        let mut out = Vec::new();
        encode(&mut out, record, format);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn json_has_exactly_the_keys_in_order() {
        assert_eq!(
            line(&record(), LogFormat::Json),
            concat!(
                r#"{"time":"2025-07-20T08:26:40.123Z","id":"0000000000000abc","#,
                r#""listener":"edge","protocol":"tcp","client":"192.0.2.1:5000","peer":null,"#,
                r#""local":"[2001:db8::1]:443","sni":"shop.example.com","#,
                r#""alpn":["h2","\\xff\\n"],"pool":"www","#,
                r#""backend":"b2","attempts":[{"backend":"b1","outcome":"refused","ms":0.412},"#,
                r#"{"backend":"b2","outcome":"connected","ms":1.000}],"preread_ms":2.500,"#,
                r#""connect_ms":1.412,"first_byte_ms":null,"duration_ms":2000.000,"bytes_in":1,"#,
                r#""bytes_out":18446744073709551615,"termination":"client_closed"}"#,
                "\n"
            )
        );
    }

    #[test]
    fn text_has_the_same_keys() {
        assert_eq!(
            line(&record(), LogFormat::Text),
            "time=2025-07-20T08:26:40.123Z id=0000000000000abc listener=edge protocol=tcp \
             client=192.0.2.1:5000 peer=- local=[2001:db8::1]:443 sni=shop.example.com \
             alpn=\"h2,\\\\xff\\\\n\" pool=www \
             backend=b2 attempts=b1:refused:0.412,b2:connected:1.000 preread_ms=2.500 connect_ms=1.412 \
             first_byte_ms=- duration_ms=2000.000 bytes_in=1 bytes_out=18446744073709551615 \
             termination=client_closed\n"
        );
    }

    #[test]
    fn nothing_known_is_null() {
        let empty = Record {
            client: None,
            hello: None,
            preread: None,
            pool: None,
            backend: None,
            attempts: vec![],
            ..record()
        };
        let json: serde_json::Value = serde_json::from_str(&line(&empty, LogFormat::Json)).unwrap();
        for key in ["client", "pool", "backend", "peer", "sni", "alpn", "preread_ms"] {
            assert!(json[key].is_null(), "{key}");
        }
        assert_eq!(json["attempts"], serde_json::json!([]));
        let text = line(&empty, LogFormat::Text);
        assert!(text.contains(" client=- ") && text.contains(" attempts=- "), "{text}");
    }

    #[test]
    fn no_control_gets_out_raw() {
        let every_control: String = ('\0'..'\u{100}').filter(|c| c.is_control()).collect();
        for format in [LogFormat::Json, LogFormat::Text] {
            let odd = format!("a b=\"c\"\\ \u{1f680}{every_control}z");
            let line = line(&Record { listener: odd.as_str().into(), ..record() }, format);
            let (body, newline) = line.split_at(line.len() - 1);
            assert_eq!(newline, "\n");
            assert!(!body.contains(char::is_control), "{body}");
            assert!(body.contains("\\u007f") && body.contains("\\u009b"), "{body}");
            if format == LogFormat::Json {
                let parsed: serde_json::Value = serde_json::from_str(body).unwrap();
                assert_eq!(parsed["listener"], odd.as_str());
            }
        }
    }

    #[test]
    fn ambiguous_words_are_quoted() {
        for (input, expected) in
            [(Some(""), "\"\""), (Some("-"), "\"-\""), (None, "-"), (Some("a b"), "\"a b\"")]
        {
            let mut out = Vec::new();
            word(&mut out, input).unwrap();
            assert_eq!(out, expected.as_bytes());
        }
    }
}
