//! Tables. Splits, flips, properties and other implementations: `tests/hello/`.

use super::*;

#[path = "../../../tests/hello/builder.rs"]
pub(in super::super) mod builder;

use builder::*;

const MAX: usize = 64 * 1024;

fn read(bytes: &[u8]) -> Answer {
    Reader::new(MAX).advance(bytes)
}

#[track_caller]
fn hello(bytes: &[u8]) -> ClientHello {
    match read(bytes) {
        Answer::Hello(hello) => hello,
        other => panic!("{other:?}"),
    }
}

#[test]
fn vectors() {
    let check = |file: &str, sni: Option<&str>, alpn: &[&str], versions: &[u16], ech| {
        let path = format!("{}/tests/data/hellos/{file}.bin", env!("CARGO_MANIFEST_DIR"));
        let found = hello(&std::fs::read(path).unwrap());
        let ordinary = |version: &&u16| **version & 0x0f0f != 0x0a0a;
        let found_versions: Vec<u16> = found.versions.iter().filter(ordinary).copied().collect();
        assert_eq!(found.sni.as_deref(), sni, "{file}");
        assert_eq!(found.alpn, Alpn::from_names(alpn).unwrap(), "{file}");
        assert_eq!(found_versions, versions, "{file}");
        assert_eq!(found.ech, ech, "{file}");
    };
    let web = ["h2", "http/1.1"];
    let both = [0x0304, 0x0303];
    let all = [0x0304, 0x0303, 0x0302, 0x0301];
    check("chromium-156", Some("shop.example.com"), &web, &both, true);
    check("firefox-esr", Some("ff.example.com"), &web, &both, true);
    check("openssl-3.0", Some("ossl.example.com"), &web, &all, false);
    check("openssl-no-sni", None, &[], &all, false);
    check("openssl-tls12", Some("old.example.com"), &[], &[0x0303], false);
}

#[test]
fn what_starts_as_tls() {
    use Answer::*;
    let check = |bytes: &[u8], expected: Answer| assert_eq!(read(bytes), expected, "{bytes:?}");
    check(b"", NeedMore);
    for first in 0..=255u8 {
        let record = (20..=24).contains(&first);
        check(&[first], if record { NeedMore } else { NotTls });
        check(
            &[first, 3],
            if !record {
                NotTls
            } else if first == 22 {
                NeedMore
            } else {
                Reject(Reason::NotHandshake)
            },
        );
        let other = if first == 22 { Reject(Reason::RecordVersion) } else { NotTls };
        check(&[first, 2], other);
    }
    check(b"GET / HTTP/1.1\r\n\r\n", NotTls);
    check(b"SSH-2.0-OpenSSH_9.2\r\n", NotTls);
    // SSL 2.0's own form of a hello is no TLS record.
    check(&[0x80, 0x2e, 1, 3, 1], NotTls);
}

#[test]
fn records_are_checked_as_soon_as_their_header_is_there() {
    let check = |bytes: &[u8], reason| assert_eq!(read(bytes), Answer::Reject(reason), "{bytes:?}");
    check(&[22, 3, 1, 0, 0], Reason::EmptyRecord);
    check(&[22, 3, 1, 0x40, 1], Reason::RecordTooLong);
    check(&[22, 3, 1, 255, 255], Reason::RecordTooLong);
    assert_eq!(read(&[22, 3, 1, 0x40, 0]), Answer::NeedMore);
    check(&[22, 3, 1, 0, 9, 2], Reason::NotClientHello);
    check(&[22, 3, 1, 0, 1, 1, 21], Reason::Interleaved);
    check(&[22, 3, 1, 0, 1, 1, 22, 2], Reason::RecordVersion);
    check(&[22, 3, 1, 0, 1, 1, 22, 3, 1, 0, 0], Reason::EmptyRecord);
    check(&[22, 3, 1, 0, 1, 1, b'G'], Reason::Interleaved);
}

#[test]
fn the_bound_counts_bytes_as_received() {
    let message = Hello::to("example.com").message();
    for sizes in [vec![], vec![1; 4096], vec![100, 3], vec![3, 1]] {
        let bytes = records(&message, sizes);
        let whole = bytes.len();
        let after = [&bytes, &[0; 100][..]].concat();
        for (max, fits) in [(whole, true), (whole - 1, false), (whole + 1, true)] {
            let answer = Reader::new(max).advance(&after);
            assert_eq!(matches!(answer, Answer::Hello(_)), fits, "{max} of {whole}");
            assert_eq!(answer == Answer::TooLarge, !fits, "{max} of {whole}");
        }
    }
}

/// Nobody waits for the end of a hello that cannot fit.
#[test]
fn a_declared_length_that_cannot_fit_is_known_at_once() {
    let check = |max, bytes: &[u8], expected| {
        assert_eq!(Reader::new(max).advance(bytes), expected, "{max} {bytes:?}");
    };
    check(65_536, &[22, 3, 1, 0x40, 0, 1, 1, 0, 0], Answer::TooLarge);
    check(65_536, &[22, 3, 1, 0, 4, 1, 0, 255, 255], Answer::TooLarge);
    check(65_536, &[22, 3, 1, 0x40, 0, 1, 0, 0xff, 0xe7], Answer::NeedMore);
    // 4 + 0xffe3 bytes take three full records and a last one: 20 bytes of headers.
    check(65_535, &[22, 3, 1, 0x40, 0, 1, 0, 0xff, 0xe8], Answer::TooLarge);
    check(65_536, &[22, 3, 1, 0x40, 0, 1, 0, 0xff, 0xe9], Answer::TooLarge);
    // The message ends in the first record; what that declares beyond it is not waited for.
    check(109, &[22, 3, 1, 0x40, 0, 1, 0, 0, 100], Answer::NeedMore);
    check(108, &[22, 3, 1, 0x40, 0, 1, 0, 0, 100], Answer::TooLarge);
    check(8, &[22, 3, 1, 0x40, 0, 1, 0, 0], Answer::TooLarge);
    check(7, b"GET / HTTP/1.1", Answer::NotTls);
}

#[test]
fn names_on_the_wire() {
    let check = |name: &str, expected: Option<&str>| {
        assert_eq!(hello(&Hello::to(name).bytes()).sni.as_deref(), expected, "{name}");
    };
    check("example.com", Some("example.com"));
    check("EXAMPLE.com.", Some("example.com"));
    check("my_host.example", Some("my_host.example"));
    check("XN--BCHER-KVA.example", Some("xn--bcher-kva.example"));
    check("10.0.0.1", None);
    check("2001:db8::1", None);
}

#[test]
fn rejected_names() {
    let check = |data: Vec<u8>, reason| {
        let bytes = Hello::plain().extension(SERVER_NAME, data.clone()).bytes();
        assert_eq!(read(&bytes), Answer::Reject(reason), "{data:?}");
    };
    let name = |name: &[u8], fault| check(server_name(name), Reason::Name(fault));
    name(b"", NameFault::Empty);
    name(b".", NameFault::Empty);
    name(b".example.com", NameFault::EmptyLabel);
    name(b"a..example.com", NameFault::EmptyLabel);
    name(b"example.com..", NameFault::EmptyLabel);
    name(b"a\0.example.com", NameFault::Character);
    name(b"*.example.com", NameFault::Character);
    name("bücher.example".as_bytes(), NameFault::Character);
    name("a".repeat(64).as_bytes(), NameFault::LabelTooLong);
    name("a.".repeat(128).as_bytes(), NameFault::TooLong);
    name(&[b'a'; 60_000], NameFault::TooLong);
    check(server_names(&[(0, b"a.com"), (0, b"b.com")]), Reason::SeveralNames);
    check(server_names(&[(0, b"a.com"), (0, b"a.com")]), Reason::SeveralNames);
    check(server_names(&[(0, b"a.com"), (1, b"b.com")]), Reason::SeveralNames);
    check(server_names(&[(1, b"a.com")]), Reason::NameType);
    // A server's empty answer, an empty list, and lengths that do not add up.
    check(vec![], Reason::Length);
    check(vec![0, 0], Reason::Length);
    check(vec![0, 6, 0, 0, 4, b'a', b'.', b'b'], Reason::Length);
    check(vec![0, 5, 0, 0, 2, b'a', b'b', 0], Reason::Length);
    check(vec![0, 6, 0, 255, 255, b'a', b'.', b'b'], Reason::Length);
    check(vec![0, 6, 0, 0, 2, b'a', b'.', b'b'], Reason::SeveralNames);
}

#[test]
fn rejected_lists() {
    let check = |kind, data: &[u8], reason| {
        let bytes = Hello::to("a.com").extension(kind, data).bytes();
        assert_eq!(read(&bytes), Answer::Reject(reason), "{kind} {data:?}");
    };
    check(ALPN, b"", Reason::Length);
    check(ALPN, b"\0\0", Reason::Alpn);
    check(ALPN, b"\0\x01\0", Reason::Alpn);
    check(ALPN, b"\0\x04\x02h2\0", Reason::Alpn);
    check(ALPN, b"\0\x03\x03h2", Reason::Alpn);
    check(ALPN, b"\0\x04\x02h2", Reason::Length);
    check(ALPN, b"\0\x03\x02h2\0", Reason::Length);
    check(SERVER_NAME, &server_name(b"b.com"), Reason::DuplicateExtension);
    check(0x2a2a, b"", Reason::DuplicateExtension);
    check(KEY_SHARE, b"", Reason::DuplicateExtension);
}

#[test]
fn fields_before_the_extensions() {
    let check = |change: fn(&mut Hello), expected: Result<Option<&str>, Reason>| {
        let mut built = Hello::to("a.com");
        change(&mut built);
        let found = read_message(&built.message()).map(|hello| hello.sni);
        assert_eq!(found.as_ref().map(Option::as_deref), expected.as_ref().copied(), "{built:?}");
    };
    check(|hello| hello.session.clear(), Ok(Some("a.com")));
    check(|hello| hello.session.push(0), Err(Reason::Length));
    check(|hello| hello.suites.clear(), Err(Reason::EmptyList));
    check(|hello| hello.compression.clear(), Err(Reason::EmptyList));
    check(|hello| hello.compression = vec![1, 0], Ok(Some("a.com")));
    check(|hello| hello.extensions = None, Ok(None));
    check(|hello| hello.extensions = Some(vec![]), Ok(None));
}

#[test]
fn versions_are_the_extension_or_the_legacy_field() {
    let mut built = Hello::plain();
    built.extensions = None;
    built.version = 0x0301;
    assert_eq!(*hello(&built.bytes()).versions, [0x0301]);
    let check = |data: &[u8], expected: Result<&[u16], Reason>| {
        let built = Hello { extensions: None, ..Hello::plain() };
        let found = read_message(&built.extension(SUPPORTED_VERSIONS, data).message());
        assert_eq!(found.map(|hello| hello.versions), expected.map(Box::from), "{data:?}");
    };
    check(&[4, 0x7a, 0x7a, 3, 4], Ok(&[0x7a7a, 0x0304]));
    check(&[0], Err(Reason::EmptyList));
    check(&[3, 3, 4, 3], Err(Reason::Length));
    check(&[4, 3, 4], Err(Reason::Length));
    check(&[2, 3, 4, 0], Err(Reason::Length));
}

#[test]
fn lengths_around_the_message() {
    let whole = Hello::to("a.com").message();
    let body = &whole[4..];
    assert!(read_message(&whole).is_ok());
    let check = |message: &[u8], reason| assert_eq!(read_message(message), Err(reason));
    check(&whole[..3], Reason::Length);
    check(&whole[..whole.len() - 1], Reason::Length);
    check(&[&whole, &[0][..]].concat(), Reason::Length);
    check(&handshake(2, body), Reason::NotClientHello);
    check(&handshake(1, &[body, &[0]].concat()), Reason::Length);
    // Every shorter body is a block of extensions, or a field, that overruns.
    for end in 0..body.len() {
        let cut = read_message(&handshake(1, &body[..end]));
        // Up to the compression methods it is a hello without extensions.
        let fields = 2 + 32 + 33 + 14 + 2;
        assert_eq!(cut.is_ok(), end == fields, "{end}: {cut:?}");
    }
}

#[test]
fn thousands_of_extensions() {
    let mut built = Hello { extensions: None, ..Hello::plain() };
    for kind in (1000..).take(16_000) {
        built = built.extension(kind, []);
    }
    assert_eq!(hello(&built.bytes()).sni, None);
    assert_eq!(
        read(&built.extension(1000, []).bytes()),
        Answer::Reject(Reason::DuplicateExtension)
    );
}

/// Told exactly, over any number of records.
#[test]
fn where_the_hello_ends() {
    let check = |bytes: &[u8], end: usize| {
        let mut reader = Reader::new(MAX);
        assert!(matches!(reader.advance(bytes), Answer::Hello(_)));
        assert_eq!(reader.end(), end);
    };
    let message = Hello::to("a.com").message();
    for sizes in [vec![], vec![50], vec![1; 1000]] {
        let bytes = records(&message, sizes);
        check(&bytes, bytes.len());
        check(&[bytes.as_slice(), &record(23, &[0; 9])].concat(), bytes.len());
    }
    check(&record(22, &[message.as_slice(), &[255; 9]].concat()), 5 + message.len());
}

/// 0-RTT data, a ChangeCipherSpec, rubbish, another message in the same record: not looked at.
#[test]
fn what_follows_the_hello() {
    let message = Hello::to("a.com").message();
    let expected = hello(&records(&message, []));
    for sizes in [vec![], vec![50], vec![1; 1000]] {
        let bytes = records(&message, sizes);
        for after in [record(20, &[1]), record(23, &[0; 900]), vec![255; 70_000], vec![0]] {
            assert_eq!(hello(&[bytes.as_slice(), &after].concat()), expected);
        }
    }
    assert_eq!(hello(&record(22, &[message.as_slice(), &[255; 9]].concat())), expected);
}
