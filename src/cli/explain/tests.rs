//! Whole answers, of the shared configurations and hellos.

use super::*;

const ROUTES: &str = include_str!("../../../tests/data/config/pass/routes.yaml");

fn said(sni: &str, alpn: &[&str]) -> Sent {
    let sni = parse_name(sni).ok().map(|pattern| pattern.name().into());
    Sent::Said { sni, alpn: Alpn::from_names(alpn).unwrap() }
}

fn hello(file: &str) -> Sent {
    let path = format!("{}/tests/data/hellos/{file}.bin", env!("CARGO_MANIFEST_DIR"));
    Sent::Bytes { parts: vec![read(Path::new(&path)).unwrap()], from: file.to_owned() }
}

fn answer(yaml: &str, listener: &str, sent: &Sent, source: &str) -> String {
    let config = config::parse(yaml, "test").unwrap();
    explain(config, listener, sent, parse_source(source).ok()).unwrap()
}

#[test]
fn a_hash_of_a_known_source_is_exact() {
    let expected = "\
listener  edge on 192.0.2.1:443
hello     sni www.shop.example.com, alpn none
source    192.0.2.7

ROUTE      CONDITIONS
routes[0]  sni shop.example.com *.shop.example.com  matches

pool      hashed, maglev of source
key       192.0.2.7: hash 0x42236b243319bac0, slot 45224
backend   10.0.0.2:443, while all backends are up
next      10.0.0.1:443
";
    let got = answer(ROUTES, "edge", &said("WWW.Shop.example.com.", &[]), "192.0.2.7");
    assert_eq!(got, expected);
}

/// The first and the next two choices, backups after the others, as failures would find them.
#[test]
fn a_hash_shows_where_it_goes_on() {
    let yaml = |policy: &str| {
        format!(
            "listeners: {{ l: {{ bind: 192.0.2.1:443, pool: p }} }}
pools: {{ p: {{ balance: {{ policy: {policy}, key: source }}, backends: [10.0.0.1:1, 10.0.0.2:1,
  10.0.0.3:1, 10.0.0.4:1, {{ name: spare, address: 10.0.0.5:1, backup: true }}] }} }}"
        )
    };
    let tail = |policy: &str| {
        let text = answer(&yaml(policy), "l", &said("", &[]), "192.0.2.7");
        text.split_once("key       ").unwrap().1.to_owned()
    };
    let key = "192.0.2.7: hash 0x42236b243319bac0";
    for (policy, slot) in [("hash", ", slot 0"), ("ring", ", slot "), ("rendezvous", "\n")] {
        let text = tail(policy);
        assert!(text.starts_with(&format!("{key}{slot}")), "{policy}: {text}");
        let next = text.split_once("\nnext      ").unwrap().1;
        assert_eq!(next.matches("10.0.0.").count(), 2, "{text}");
    }
    let few = yaml("maglev").replace("10.0.0.2:1,\n  10.0.0.3:1, 10.0.0.4:1, ", "");
    let text = answer(&few, "l", &said("", &[]), "192.0.2.7");
    assert!(
        text.ends_with("all backends are up\nnext      spare at 10.0.0.5:1, a backup\n"),
        "{text}"
    );
    let alone = few.replace(", { name: spare, address: 10.0.0.5:1, backup: true }", "");
    let alone = alone.replace("10.0.0.1:1, {", "10.0.0.1:1 ] } } #");
    let text = answer(&alone, "l", &said("", &[]), "192.0.2.7");
    assert!(text.ends_with("next      no other\n"), "{text}");
}

#[test]
fn every_route_says_why_not() {
    let expected = "\
listener  edge on 192.0.2.1:443
hello     sni xn--bcher-kva.example, alpn h2
source    unknown: no `source` condition holds

ROUTE      CONDITIONS
routes[0]  sni shop.example.com *.shop.example.com                       no: another sni
routes[1]  sni xn--bcher-kva.example *.example.com, alpn h2 acme-tls/1…  no: source unknown
routes[2]  sni old.example.com                                           no: another sni
routes[3]  alpn \\x00\\xc3\\xbf                                             no: another alpn
routes[4]  source 2001:db8::/32 0.0.0.0/1                                no: source unknown

closed: no route (no_route)
";
    assert_eq!(answer(ROUTES, "edge", &said("bücher.example", &["h2"]), ""), expected);
}

/// The parts of answers that differ: what each policy and action says.
#[test]
fn where_it_leads() {
    let check = |listener: &str, sent: &Sent, source: &str, expected: &str| {
        let got = answer(ROUTES, listener, sent, source);
        assert!(got.ends_with(expected), "{got}\nshould end with\n{expected}");
    };
    let none = said("", &[]);
    let turns = "\
pool      turns, round_robin
backend   in turn, by weight, of
          10.0.3.1:443, weight 2
          10.0.3.2:443, weight 1
";
    check("edge", &said("bücher.example", &["h2"]), "10.9.9.9", turns);
    check("plain", &none, "", turns);
    check("edge", &said("old.example.com", &[]), "", "alert unrecognized_name (rejected)\n");
    check("edge", &said("", &["\0\u{ff}"]), "", "rejected with RST (rejected)\n");
    check("edge", &none, "200.0.0.1", "no: another source\n\nclosed: no route (no_route)\n");
    let named = "\
split     by source
pool      named, maglev of sni
key       a.example: hash 0x6c888a4731807849, slot 25736
backend   b1 at 10.0.1.1:443, while all backends are up
next      10.0.1.2:443
";
    check("edge", &said("a.example", &[]), "::ffff:10.1.1.1", named);
    let nameless = "key       10.1.1.1, for want of a name: hash ";
    let got = answer(ROUTES, "edge", &none, "10.1.1.1:5");
    assert!(got.contains(nameless), "{got}");
    let unknown = "\
pool      hashed, maglev of source
key       unknown: it needs the client's address; give it by --source
backend   one of
          10.0.0.1:443, weight 1
          10.0.0.2:443, weight 1
";
    check("edge", &said("shop.example.com", &[]), "", unknown);
    let port = "the client's port; give it by --source IP:PORT\nbackend   one of\n";
    assert!(answer(ROUTES, "any", &none, "10.1.1.1").contains(port));
    let local = "the address that the client connects to, of several here\nbackend   one of\n";
    assert!(answer(ROUTES, "any", &none, "10.1.1.1:5").contains(local));
    let fixed = ROUTES.replace("[::]:8443", "192.0.2.1:8443");
    let exact = "key       tcp 10.1.1.1:5 to 192.0.2.1:8443: hash 0x";
    assert!(answer(&fixed, "any", &none, "10.1.1.1:5").contains(exact));
    check("local", &none, "10.0.0.1", "\n          10.0.4.1:443, weight 1\n");
    assert!(answer(ROUTES, "local", &none, "10.0.0.1").contains("source    none: clients of a"));
}

const UDP: &str = "
listeners:
  h3:
    bind: 192.0.2.1:443
    protocol: udp
    routes:
      - { sni: old.example.com, action: reject }
      - { sni: older.example.com, action: reset }
      - { sni: a.example.com, pool: hashed }
      - { alpn: h3, pool: least }
pools:
  hashed: { balance: maglev, backends: [10.0.0.1:443, 10.0.0.2:443] }
  least: { backends: [10.0.0.1:443] }
";

#[test]
fn a_flow_of_udp() {
    let expected = "\
listener  h3 on 192.0.2.1:443, a flow of udp
hello     sni a.example.com, alpn none
source    192.0.2.7:5

ROUTE      CONDITIONS
routes[0]  sni old.example.com    no: another sni
routes[1]  sni older.example.com  no: another sni
routes[2]  sni a.example.com      matches

pool      hashed, maglev of five_tuple
key       udp 192.0.2.7:5 to 192.0.2.1:443: hash ";
    let got = answer(UDP, "h3", &said("a.example.com", &[]), "192.0.2.7:5");
    let (head, tail) = got.split_at(expected.len());
    assert_eq!(head, expected);
    // The protocol is part of the key.
    let tcp = answer(
        &UDP.replace("    protocol: udp\n", ""),
        "h3",
        &said("a.example.com", &[]),
        "192.0.2.7:5",
    );
    let (_, of_tcp) = tcp.split_once("hash ").unwrap();
    assert_ne!(tail.lines().next(), of_tcp.lines().next());

    let dropped = "dropped; over UDP nothing tells the client (rejected)\n";
    for (sni, alpn, expected) in [
        ("old.example.com", "x", dropped),
        ("older.example.com", "x", dropped),
        ("b.example.com", "x", "\ndropped: no route (no_route)\n"),
        (
            "b.example.com",
            "h3",
            "the fewest flows for its weight, of\n          10.0.0.1:443, weight 1\n",
        ),
    ] {
        let got = answer(UDP, "h3", &said(sni, &[alpn]), "");
        assert!(got.ends_with(expected), "{got}");
    }
}

/// Files of datagrams.
fn datagrams(files: &[&str]) -> Sent {
    let path = |file| format!("{}/tests/data/quic/{file}.bin", env!("CARGO_MANIFEST_DIR"));
    let parts = files.iter().map(|file| read(Path::new(&path(file))).unwrap()).collect();
    Sent::Bytes { parts, from: files.join(", ") }
}

#[test]
fn hellos_as_datagrams() {
    let yaml = UDP.replace("a.example.com", "aio.example.com");
    let line = |sent: &Sent| {
        let text = answer(&yaml, "h3", sent, "");
        let (_, rest) = text.split_once("hello     ").unwrap();
        let (line, _) = rest.split_once("\nsource ").unwrap();
        (line.to_owned(), text)
    };
    let (read, text) = line(&datagrams(&["aioquic-v2"]));
    assert_eq!(read, "aioquic-v2: sni aio.example.com, alpn h3, versions TLS1.3, ech no");
    assert!(text.contains("\npool      hashed, maglev"), "{text}");
    for both in [["chromium-156-a", "chromium-156-b"], ["chromium-156-b", "chromium-156-a"]] {
        let (read, text) = line(&datagrams(&both));
        let expected = format!("{}: sni shop.example.com, alpn h3, versions ", both.join(", "));
        assert!(read.starts_with(&expected), "{read}");
        let (_, route) = text.split_once("\nroutes[3]  alpn h3 ").unwrap();
        assert!(route.trim_start().starts_with("matches\n"), "{text}");
    }
    let one = |bytes: &[u8]| Sent::Bytes { parts: vec![bytes.to_vec()], from: "f".to_owned() };
    let mut unknown = [0; 1200];
    unknown[0] = 0xc0;
    unknown[1] = 0x1a;
    for (sent, expected, routed) in [
        (datagrams(&["chromium-156-a"]), "incomplete: give --hello for each datagram", false),
        (one(b"GET"), "opens no QUIC connection: neither sni nor alpn", true),
        (one(&unknown), "QUIC of an unknown version: neither sni nor alpn", true),
        (
            one(&[0xc0, 0, 0, 0, 1]),
            "rejected: the datagram ends in the header of the packet",
            false,
        ),
    ] {
        let (read, text) = line(&sent);
        assert!(read.contains(expected), "{read}");
        assert_eq!(text.ends_with("\ndropped before any route\n"), !routed, "{text}");
    }
    // Of TCP there is one beginning.
    let config = config::parse(ROUTES, "test").unwrap();
    let error = explain(config, "edge", &datagrams(&["aioquic-v1", "aioquic-v2"]), None);
    let expected = "several --hello are the datagrams of a flow, and edge is for TCP; give one";
    assert_eq!(error.unwrap_err().to_string(), expected);
}

#[test]
fn hellos_as_bytes() {
    let line = |listener: &str, sent: &Sent| {
        let text = answer(ROUTES, listener, sent, "");
        let (_, rest) = text.split_once("hello     ").unwrap();
        let (line, _) = rest.split_once("\nsource ").unwrap();
        (line.to_owned(), text)
    };
    let (read, text) = line("edge", &hello("openssl-tls12"));
    assert_eq!(read, "openssl-tls12: sni old.example.com, alpn none, versions TLS1.2, ech no");
    assert!(text.ends_with("rejected with the TLS alert unrecognized_name (rejected)\n"), "{text}");
    let (read, _) = line("edge", &hello("chromium-156"));
    let expected = "chromium-156: sni shop.example.com, alpn h2 http/1.1, \
                    versions GREASE TLS1.3 TLS1.2, \
                    ech yes or GREASE, so the name may be an outer one";
    assert_eq!(read, expected);
    let (read, _) = line("plain", &hello("openssl-no-sni"));
    let expected = "openssl-no-sni: sni none, alpn none, versions TLS1.3 TLS1.2 TLS1.1 TLS1.0, \
                    ech no\n          (not read here: nothing asks for it)";
    assert_eq!(read, expected);

    let bytes = |bytes: &[u8]| Sent::Bytes { parts: vec![bytes.to_vec()], from: "f".to_owned() };
    let Sent::Bytes { parts, .. } = hello("openssl-3.0") else { panic!() };
    let whole = parts.concat();
    for (sent, expected, routed) in [
        (&b"GET / HTTP/1.1\r\n"[..], "not TLS: neither sni nor alpn", true),
        (b"", "nothing sent: routed as not TLS after `timeout`", true),
        (&whole[..100], "incomplete (preread_timeout)", false),
        (b"\x16\x03\x01\0\0", "rejected: a record is empty (preread_invalid)", false),
        (b"\x16\x03\x01\x40\0\x01\0\xff\xff", "larger than `max_bytes` (preread_too_large)", false),
    ] {
        let (read, text) = line("edge", &bytes(sent));
        assert_eq!(read, format!("f: {expected}"));
        assert_eq!(text.ends_with("\nclosed before any route\n"), !routed, "{text}");
    }
}

#[test]
fn long_lists_are_bounded() {
    let mut yaml = "listeners: { l: { bind: 192.0.2.1:443, routes: [".to_owned();
    (0..40).for_each(|i| yaml += &format!("{{ sni: r{i}.example, pool: p }}, "));
    yaml += "{ pool: p }] } }\npools: { p: { backends: [";
    (0..30).for_each(|i| yaml += &format!("10.0.0.{i}:443, "));
    yaml += "{ address: 10.0.1.1:1, weight: 0 }] } }";
    let text = answer(&yaml, "l", &said("a.example", &[]), "");
    assert!(text.contains("\nroutes[11]  sni r11.example            no: another sni\n"), "{text}");
    let more = "\n...         28 more that do not match\nroutes[40]  everything else";
    assert!(text.contains(more), "{text}");
    assert!(
        text.ends_with("\n          10.0.0.18:443, weight 1\n          ... 20 more\n"),
        "{text}"
    );
}

#[test]
fn arguments() {
    assert_eq!(parse_name("BÜCHER.example.").unwrap().name(), "xn--bcher-kva.example");
    for wrong in ["*.example.com", "*", "10.0.0.1", "", "a b", "xn--a.example"] {
        assert!(parse_name(wrong).is_err(), "{wrong}");
    }
    let check = |text: &str, ip: &str, port: Option<u16>| {
        let source = Source { ip: ip.parse().unwrap(), port };
        assert_eq!(parse_source(text).unwrap(), source, "{text}");
    };
    check("192.0.2.1", "192.0.2.1", None);
    check("192.0.2.1:50000", "192.0.2.1", Some(50000));
    check("2001:db8::1", "2001:db8::1", None);
    check("[2001:db8::1]", "2001:db8::1", None);
    check("[2001:db8::1]:443", "2001:db8::1", Some(443));
    for wrong in ["", "localhost", "192.0.2.1:", "192.0.2.1:70000", "192.0.2.0/24"] {
        assert!(parse_source(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn an_unknown_listener_is_pointed_to_the_right_one() {
    let config = config::parse(ROUTES, "test").unwrap();
    let error = explain(config, "egde", &said("", &[]), None).unwrap_err().to_string();
    assert_eq!(error, "there is no listener `egde`; did you mean `edge`?");
}
