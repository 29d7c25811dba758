//! QUIC servers of several names behind one address, with real clients.

use crate::harness::{
    Dial, Pointsman, QuicClient, QuicServer, Record, browse_quic, routed, wait_for,
};

struct Site {
    pointsman: Pointsman,
    a: QuicServer,
    b: QuicServer,
}

impl Site {
    fn open() -> Self {
        Self::with(&[], &["--retry"])
    }

    /// With further arguments of both servers.
    fn with(a: &[&str], b: &[&str]) -> Self {
        let a = QuicServer::start("a", "a.example.com", "h3,echo", a);
        let b = QuicServer::start("b", "b.example.com", "h3,echo,special", b);
        let routes = [
            "{ sni: a.example.com, pool: a }",
            "{ sni: b.example.com, pool: b }",
            "{ sni: gone.example.com, action: reject }",
            "{ alpn: special, pool: b }",
        ];
        let pools = [("a", a.address()), ("b", b.address())];
        let yaml = routed(&["protocol: udp"], &routes, &pools) + "shutdown: { grace: 0s }\n";
        let pointsman = Pointsman::start(&yaml);
        Site { pointsman, a, b }
    }

    fn dial<'a>(&self, server: &'a QuicServer, name: Option<&'a str>) -> Dial<'a> {
        let authority = server.certificate();
        let address = self.pointsman.address("edge");
        let port = address.rsplit_once(':').unwrap().1.parse().unwrap();
        Dial { port, name, authority, alpn: "echo", version: 1, more: &[] }
    }
}

#[test]
fn each_server_is_reached_by_its_name_in_both_versions() {
    let site = Site::open();
    for version in [1, 2] {
        for (server, who) in [(&site.a, "a"), (&site.b, "b")] {
            let host = format!("{who}.example.com");
            let dial = Dial { version, ..site.dial(server, Some(&host)) };
            let mut client = QuicClient::connect(dial);
            let number = if version == 1 { "1" } else { "1798521807" };
            assert_eq!(client.connected().unwrap(), format!("{number} echo"));
            for round in 0..20 {
                assert_eq!(client.ask(&format!("line {round}")), who);
            }
        }
    }
    let records = site.pointsman.stop();
    assert_eq!(records.len(), 4);
    for record in records {
        let pool = record.text("sni").strip_suffix(".example.com").unwrap();
        assert_eq!(record.text("pool"), pool);
        assert_eq!(record.list("alpn"), ["echo"]);
        assert!(record.number("bytes_in") > 1200.0 && record.number("bytes_out") > 1200.0);
        assert!(!record.is_null("preread_ms") && !record.is_null("first_byte_ms"), "{record:?}");
    }
}

/// What a client that resumes a session sends along with its hello goes where that goes.
#[test]
fn early_data_is_answered_by_the_server_of_its_name() {
    let site = Site::with(&["--tickets"], &["--tickets"]);
    for (server, who) in [(&site.a, "a"), (&site.b, "b")] {
        let host = format!("{who}.example.com");
        for round in 0..2 {
            let line = format!("line {round}");
            let more = ["--early", &line];
            let dial = Dial { more: &more, ..site.dial(server, Some(&host)) };
            let mut client = QuicClient::connect(dial);
            assert_eq!(client.connected().unwrap(), "1 echo early");
            assert_eq!(client.answer(), format!("{who} early: {line}"));
            assert_eq!(client.ask("later"), who);
        }
    }
    let records = site.pointsman.stop();
    // One for the ticket, and one that used it.
    assert_eq!(records.len(), 8);
    for record in records {
        let pool = record.text("sni").strip_suffix(".example.com").unwrap();
        assert_eq!((record.text("pool"), record.list("alpn")), (pool, vec!["echo"]));
    }
}

#[test]
fn servers_of_both_families_are_reached_over_ipv6() {
    let a = QuicServer::start("a", "a.example.com", "echo", &["--host", "::1"]);
    let b = QuicServer::start("b", "b.example.com", "echo", &[]);
    let routes = ["{ sni: a.example.com, pool: a }", "{ sni: b.example.com, pool: b }"];
    let pools = [("a", a.address()), ("b", b.address())];
    for bind in ["[::1]:0", "[::]:0"] {
        let listener = [&*format!("bind: \"{bind}\""), "protocol: udp"];
        let yaml = routed(&listener, &routes, &pools) + "shutdown: { grace: 0s }\n";
        let pointsman = Pointsman::start(&yaml);
        let address = pointsman.address("edge");
        let port = address.rsplit_once(':').unwrap().1.parse().unwrap();
        for (server, who) in [(&a, "a"), (&b, "b")] {
            let (name, authority) = (format!("{who}.example.com"), server.certificate());
            let name = Some(&*name);
            let more = &["--host", "::1"];
            let dial = Dial { port, name, authority, alpn: "echo", version: 1, more };
            let mut client = QuicClient::connect(dial);
            assert_eq!(client.ask("over IPv6"), who);
        }
        for record in pointsman.stop() {
            assert!(record.text("client").starts_with("[::1]:"), "{record:?}");
            assert_eq!(record.text("local"), format!("[::1]:{port}"));
        }
    }
}

#[test]
fn a_protocol_leads_to_its_server_and_a_rejected_name_nowhere() {
    let site = Site::open();
    let special = Dial { alpn: "special", ..site.dial(&site.b, Some("b.example.com")) };
    assert_eq!(QuicClient::connect(special).ask("x"), "b");
    let unknown = Dial { alpn: "special", ..site.dial(&site.b, Some("c.example.com")) };
    let mut client = QuicClient::start(unknown);
    assert_eq!(client.connected(), None, "the certificate is b's");
    let _gone = QuicClient::start(site.dial(&site.a, Some("gone.example.com")));
    let _none = QuicClient::start(site.dial(&site.a, Some("none.example.com")));
    let by = |name: &str| -> Record {
        wait_for("its record", || {
            let records = site.pointsman.access_log(0);
            records.into_iter().find(|record| record.text("sni") == name)
        })
    };
    for (name, termination) in [("gone.example.com", "rejected"), ("none.example.com", "no_route")]
    {
        let record = by(name);
        assert_eq!(record.text("termination"), termination);
        assert_eq!(record.list("alpn"), ["echo"]);
    }
    let records = site.pointsman.stop();
    let c = records.iter().find(|record| record.text("sni") == "c.example.com").unwrap();
    assert_eq!((c.text("pool"), c.list("alpn")), ("b", vec!["special"]));
}

#[test]
fn chromium_shows_the_page_of_each_name_over_http3() {
    let site = Site::open();
    let address = site.pointsman.address("edge");
    let port = address.rsplit_once(':').unwrap().1;
    for (server, who) in [(&site.a, "a"), (&site.b, "b")] {
        let host = format!("{who}.example.com:{port}");
        let page = browse_quic(&host, server.certificate());
        assert!(page.contains(&format!("<p>{who} {host}</p>")), "{page}");
    }
    let metrics = site.pointsman.metrics();
    assert!(metrics.value("pointsman_ech_total", &[("listener", "edge")]) >= 2.0);
    let records = site.pointsman.stop();
    for who in ["a", "b"] {
        let host = format!("{who}.example.com");
        let mine: Vec<_> = records.iter().filter(|record| record.text("sni") == host).collect();
        assert!(!mine.is_empty(), "{records:?}");
        for record in mine {
            assert_eq!((record.text("protocol"), record.text("pool")), ("udp", who));
            assert_eq!(record.list("alpn"), ["h3"]);
        }
    }
}
