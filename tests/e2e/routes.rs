//! Which route a connection takes, and what only a route's conditions may see.

use crate::harness::hello::{ALPN, Hello, alpn};
use crate::harness::{Edge, Stream, answer, routed};

fn hello(name: &str) -> Vec<u8> {
    Hello::to(name).bytes()
}

fn offering(name: &str, protocols: &[&str]) -> Vec<u8> {
    Hello::to(name).alpn(protocols).bytes()
}

/// Each of these first bytes goes to this pool, or is closed.
#[track_caller]
fn expect(edge: &Edge, cases: &[(Vec<u8>, Option<&str>)]) {
    let flights: Vec<_> = cases.iter().map(|(bytes, _)| vec![bytes.clone()]).collect();
    let answers = edge.ask_all(&flights);
    for (number, (answer, (bytes, pool))) in answers.iter().zip(cases).enumerate() {
        let shown = bytes.escape_ascii();
        assert_eq!(answer.as_deref(), *pool, "case {number}: {shown}");
    }
}

#[test]
fn host_names() {
    let routes = [
        "{ sni: \"*.first.example\", pool: first }",
        "{ sni: [one.first.example, exact.example], pool: exact }",
        "{ sni: \"*.example.com\", pool: wild }",
        "{ sni: example.com, pool: apex }",
        "{ sni: [bücher.example, xn--mnchen-3ya.example], pool: idn }",
        "{ sni: [UPPER.Example, dot.example., my_host.example], pool: spelled }",
        "{ pool: other }",
    ];
    let pools = ["first", "exact", "wild", "apex", "idn", "spelled", "other"];
    let edge = Edge::start(&[], &routes, &pools);
    let cases = [
        // The first that matches, not the most specific.
        ("one.first.example", "first"),
        ("exact.example", "exact"),
        ("not.exact.example", "other"),
        ("exact.example.com", "wild"),
        // One label and several, the apex never.
        ("a.example.com", "wild"),
        ("a.b.c.d.e.example.com", "wild"),
        ("example.com", "apex"),
        ("first.example", "other"),
        ("notexample.com", "other"),
        ("example.com.evil.example", "other"),
        ("com", "other"),
        // How it is spelled on the wire, and in the file.
        ("EXACT.Example", "exact"),
        ("A.EXAMPLE.COM", "wild"),
        ("exact.example.", "exact"),
        ("example.com.", "apex"),
        ("a.example.com.", "wild"),
        ("_dmarc.example.com", "wild"),
        ("under_score.example.com", "wild"),
        ("my_host.example", "spelled"),
        ("upper.example", "spelled"),
        ("dot.example", "spelled"),
        ("DOT.example.", "spelled"),
        ("xn--bcher-kva.example", "idn"),
        ("XN--BCHER-KVA.example.", "idn"),
        ("xn--mnchen-3ya.example", "idn"),
        ("bucher.example", "other"),
    ];
    let cases: Vec<_> = cases.iter().map(|(name, pool)| (hello(name), Some(*pool))).collect();
    expect(&edge, &cases);
    edge.expect_closed("client_closed", cases.len());
}

#[test]
fn what_has_no_name_satisfies_none() {
    let routes = ["{ sni: [\"*.example.com\", localhost], pool: named }", "{ pool: other }"];
    let edge = Edge::start(&[], &routes, &["named", "other"]);
    let cases = [
        hello("127.0.0.1"),
        hello("::1"),
        Hello::plain().bytes(),
        b"GET / HTTP/1.1\r\nHost: a.example.com\r\n\r\n".to_vec(),
        b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(),
        // SSL 2.0's own form of a hello.
        vec![0x80, 0x2e, 1, 3, 1, 0, 0x15, 0, 0, 0, 0x10],
        vec![0],
        vec![255; 100_000],
    ];
    expect(&edge, &cases.map(|bytes| (bytes, Some("other"))));
}

#[test]
fn protocols() {
    let routes = [
        "{ sni: www.example.com, alpn: acme-tls/1, pool: acme }",
        "{ sni: www.example.com, pool: www }",
        "{ alpn: [imap, h3x], pool: listed }",
        "{ pool: other }",
    ];
    let edge = Edge::start(&[], &routes, &["acme", "www", "listed", "other"]);
    let cases = [
        (offering("www.example.com", &["acme-tls/1"]), Some("acme")),
        (offering("www.example.com", &["h2", "acme-tls/1"]), Some("acme")),
        (offering("www.example.com", &["h2", "http/1.1"]), Some("www")),
        (offering("www.example.com", &["ACME-TLS/1"]), Some("www")),
        (offering("www.example.com", &["acme-tls/1x", "acme-tls/"]), Some("www")),
        (hello("www.example.com"), Some("www")),
        (offering("old.example.com", &["acme-tls/1"]), Some("other")),
        (offering("old.example.com", &["smtp", "imap"]), Some("listed")),
        (offering("old.example.com", &["h3x"]), Some("listed")),
        (Hello::plain().extension(ALPN, alpn(&["imap"])).bytes(), Some("listed")),
        (Hello::plain().bytes(), Some("other")),
        (b"imap".to_vec(), Some("other")),
    ];
    expect(&edge, &cases);
}

#[test]
fn sources() {
    let listener = ["bind: [\"127.0.0.1:0\", \"[::1]:0\"]"];
    let routes = [
        "{ sni: a.example.com, source: [127.0.0.2/32, 127.1.0.0/16], pool: inside }",
        "{ source: \"::1/128\", pool: six }",
        "{ source: [127.0.0.0/30], pool: four }",
    ];
    let edge = Edge::start(&listener, &routes, &["inside", "six", "four"]);
    let status = edge.pointsman.status();
    let bind = |index: usize| status["listeners"]["edge"]["bind"][index].as_str().unwrap();
    let ask = |source: &str, name: &str| {
        let source = std::net::SocketAddr::new(source.parse().unwrap(), 0);
        let address = bind(usize::from(source.is_ipv6()));
        let mut stream = Stream::connect_from(source, address).unwrap();
        stream.write(&hello(name));
        stream.finish();
        answer(&stream.read_to_end(), &hello(name))
    };
    assert_eq!(ask("127.0.0.2", "a.example.com").as_deref(), Some("inside"));
    assert_eq!(ask("127.1.255.3", "a.example.com").as_deref(), Some("inside"));
    assert_eq!(ask("127.0.0.2", "b.example.com").as_deref(), Some("four"));
    assert_eq!(ask("127.0.0.3", "a.example.com").as_deref(), Some("four"));
    assert_eq!(ask("127.0.0.4", "a.example.com"), None);
    assert_eq!(ask("127.2.0.1", "a.example.com"), None);
    assert_eq!(ask("::1", "a.example.com").as_deref(), Some("six"));
    edge.expect_closed("no_route", 2);
}

/// Closed by FIN, whatever else the client has sent.
#[test]
fn no_route() {
    let edge = Edge::start(&[], &["{ sni: a.example.com, pool: a }"], &["a"]);
    let cases = [
        hello("b.example.com"),
        hello("127.0.0.1"),
        Hello::plain().bytes(),
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        [hello("b.example.com"), vec![23; 200_000]].concat(),
    ];
    for bytes in &cases {
        let mut stream = edge.connect();
        stream.write(bytes);
        stream.expect_end();
    }
    edge.expect_closed("no_route", cases.len());
    assert_eq!(edge.reached(), 0);
    assert_eq!(edge.ask(&hello("a.example.com")).as_deref(), Some("a"));
    for record in &edge.pointsman.access_log(cases.len() + 1)[..cases.len()] {
        assert_eq!((record.text("termination"), record.text("pool")), ("no_route", "-"));
    }
}

/// A reload moves a name to another pool. A hello that was on its way goes where its name led
/// before or leads now, and not nowhere.
#[test]
fn a_reload_changes_routes() {
    let edge = Edge::start(&[], &["{ sni: a.example.com, pool: one }"], &["one", "two"]);
    let addresses = edge.pools();
    let bytes = hello("a.example.com");
    let mut waiting = edge.connect();
    waiting.write(&bytes[..50]);
    edge.pointsman.wait_received();
    assert_eq!(edge.ask(&bytes).as_deref(), Some("one"));
    let changed = ["{ sni: b.example.com, pool: one }", "{ sni: a.example.com, pool: two }"];
    edge.pointsman.reload(&routed(&[], &changed, &addresses)).unwrap();
    assert_eq!(edge.ask(&bytes).as_deref(), Some("two"));
    assert_eq!(edge.ask(&hello("b.example.com")).as_deref(), Some("one"));
    waiting.write(&bytes[50..]);
    waiting.finish();
    assert!(answer(&waiting.read_to_end(), &bytes).is_some());
}
