//! Checks that talk, with the servers they are for.

use std::fs;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{
    Backend, HeldPort, Hideable, Nginx, Pointsman, SServer, Stream, certify, certify_by_authority,
    command, pass, wait_for, wait_until,
};

const MS: Duration = Duration::from_millis(1);

/// Pools of these names, backends and `health`, the first of them behind the listener `edge`.
fn pools(pools: &[(&str, &[&str], &str)]) -> String {
    let mut yaml =
        format!("listeners: {{ edge: {{ bind: \"127.0.0.1:0\", pool: {} }} }}\n", pools[0].0);
    yaml += "pools:\n";
    for (name, backends, health) in pools {
        let backends: Vec<_> = backends.iter().map(|address| format!("\"{address}\"")).collect();
        let backends = backends.join(", ");
        yaml += &format!("  {name}: {{ backends: [{backends}], health: {{ {health} }} }}\n");
    }
    yaml
}

fn backend(pointsman: &Pointsman, pool: &str, backend: &str) -> Value {
    let status = pointsman.status();
    let found = &status["pools"][pool]["backends"][backend];
    assert!(found.is_object(), "no {pool}/{backend} in {status}");
    found.clone()
}

fn state(pointsman: &Pointsman, pool: &str, address: &str) -> String {
    backend(pointsman, pool, address)["state"].as_str().unwrap().to_owned()
}

/// The reason of the latest check that failed, with its code; "ok" of one that passed.
fn verdict(pointsman: &Pointsman, pool: &str, address: &str) -> String {
    let check = &backend(pointsman, pool, address)["last_check"];
    assert_eq!(check["ok"], check["reason"].is_null(), "{check}");
    let reason = check["reason"].as_str().unwrap_or("ok");
    check["code"].as_u64().map_or(reason.to_owned(), |code| format!("{reason} {code}"))
}

fn passed(pointsman: &Pointsman, pool: &str, backend: &str) -> f64 {
    let labels = [("pool", pool), ("backend", backend), ("result", "pass")];
    pointsman.metrics().value("pointsman_backend_checks_total", &labels)
}

/// All kinds of checks of a real nginx, and not a word of a reset in its log.
#[test]
fn nginx_is_checked_and_logs_nothing_of_it() {
    let (plain, secure) = (HeldPort::new("127.0.0.1"), HeldPort::new("127.0.0.1"));
    let (plain, secure) = (plain.address().to_string(), secure.address().to_string());
    let locations = "root DIR; error_log DIR/info.log info; location /busy { return 503 no; } \
                     location /moved { return 302 /; } location / { }";
    let nginx = Nginx::servers(
        &[
            format!("listen unix:DIR/socket; listen {plain}; {locations}"),
            format!(
                "listen {secure} ssl; server_name a.example; ssl_certificate DIR/own.pem; \
                 ssl_certificate_key DIR/own.key; {locations}"
            ),
        ],
        |directory| {
            certify(directory, "own", "DNS:a.example");
            // Longer than what arrives together with its head.
            fs::write(directory.join("page"), vec![b'x'; 500_000]).unwrap();
        },
    );
    let pace = "interval: 10ms";
    let http = format!("type: http, path: /page, {pace}");
    let rows: [(&str, &str, String); 7] = [
        ("tcp", &plain, pace.to_owned()),
        ("http", &plain, http.clone()),
        ("moved", &plain, format!("type: http, path: /moved, expect: 302, {pace}")),
        ("tls", &secure, format!("type: tls, {pace}")),
        ("named", &secure, format!("type: tls, sni: a.example, {pace}")),
        ("https", &secure, format!("{http}, tls: true, sni: a.example")),
        ("port", "127.0.0.1:1", format!("{http}, port: {}", plain.rsplit_once(':').unwrap().1)),
    ];
    let lists: Vec<_> = rows.iter().map(|(name, at, health)| (*name, [*at], health)).collect();
    let lists: Vec<_> =
        lists.iter().map(|(name, at, health)| (*name, &at[..], &***health)).collect();
    let pointsman = Pointsman::start(&pools(&lists));
    wait_until("fifty checks of each kind", || {
        rows.iter().all(|(name, at, _)| passed(&pointsman, name, at) >= 50.0)
    });
    for (name, at, _) in &rows {
        assert_eq!(verdict(&pointsman, name, at), "ok", "{name}");
    }
    let busy = [plain.as_str()];
    pointsman.reload(&pools(&[("busy", &busy, "type: http, path: /busy")])).unwrap();
    wait_until("the busy page", || verdict(&pointsman, "busy", &plain) == "status 503");
    assert_eq!(state(&pointsman, "busy", &plain), "down");
    let shown = command(&["status", "--admin", &pointsman.admin_address()]).success();
    assert!(shown.contains("status 503 "), "{shown}");
    assert!(pointsman.log().contains("reason=\"status\" code=503"), "{}", pointsman.log());
    // Before the end of the process, which ends its last checks as it may.
    let log = fs::read_to_string(nginx.directory().join("info.log")).unwrap();
    pointsman.stop();
    // The log's own check: it does tell who closes without a request.
    assert!(log.contains("[info]"), "{log}");
    for noise in ["reset", "premature", "SSL", "[warn]", "[error]", "[crit]", "timed out"] {
        let line = log.lines().find(|line| line.contains(noise));
        assert_eq!(line, None, "{noise}");
    }
}

/// Stopped in the middle of its life, a server is still connected to by its kernel. A tcp check
/// takes it for healthy; tls and http notice within `fall` intervals and a timeout.
#[test]
fn a_stopped_process_is_noticed_by_those_who_talk() {
    let (server, other) = (SServer::start(&[]), SServer::start(&[]));
    let (address, spare) = (server.address(), other.address());
    let both = [address.as_str(), spare.as_str()];
    let pace = "interval: 300ms, timeout: 300ms, rise: 2, fall: 3";
    let pointsman = Pointsman::start(&pools(&[
        ("tls", &both, &format!("type: tls, {pace}")),
        ("http", &both, &format!("type: http, tls: true, {pace}")),
        ("tcp", &both, pace),
    ]));
    for (pool, at) in ["tls", "http", "tcp"].iter().flat_map(|pool| both.map(|at| (pool, at))) {
        wait_until("all to be up", || state(&pointsman, pool, at) == "up");
    }
    server.signal(Signal::STOP);
    let stopped = Instant::now();
    let mut noticed = Vec::new();
    for pool in ["tls", "http"] {
        wait_until("it to be down", || state(&pointsman, pool, &address) == "down");
        noticed.push(stopped.elapsed());
        assert_eq!(verdict(&pointsman, pool, &address), "silent", "{pool}");
    }
    // Intervals vary by a tenth; the rest is for a busy machine.
    let limit = 3 * 300 * MS * 11 / 10 + 300 * MS + 500 * MS;
    assert!(noticed.iter().all(|took| *took <= limit), "{noticed:?}");
    for _ in 0..10 {
        drop(pointsman.connect("edge"));
    }
    for record in pointsman.access_log(10) {
        assert_eq!(record.attempts(), [(spare.clone(), "connected".to_owned())]);
    }
    let before = passed(&pointsman, "tcp", &address);
    wait_until("more checks", || passed(&pointsman, "tcp", &address) >= before + 3.0);
    assert_eq!(state(&pointsman, "tcp", &address), "up");

    server.signal(Signal::CONT);
    for pool in ["tls", "http"] {
        wait_until("it to be up again", || state(&pointsman, pool, &address) == "up");
    }
    pointsman.stop();
}

/// A server that knows one name answers the others by an alert.
#[test]
fn an_alert_is_a_failure() {
    let arguments = "-servername a.example -servername_fatal -cert2 own.pem -key2 own.key";
    let server = SServer::start(&arguments.split(' ').collect::<Vec<_>>());
    let at = [&*server.address()];
    let pointsman = Pointsman::start(&pools(&[
        ("right", &at, "type: tls, sni: a.example"),
        ("wrong", &at, "type: tls, sni: b.example"),
        ("http", &at, "type: http, tls: true, sni: b.example"),
    ]));
    assert_eq!(verdict(&pointsman, "right", at[0]), "ok");
    for pool in ["wrong", "http"] {
        assert_eq!(verdict(&pointsman, pool, at[0]), "tls_alert 112", "{pool}");
        assert_eq!(state(&pointsman, pool, at[0]), "down", "{pool}");
    }
    pointsman.stop();
}

/// Versions and ciphers that only one side speaks are told by an alert as well.
#[test]
fn old_and_new_versions() {
    let (old, new) = (SServer::start(&["-tls1_2"]), SServer::start(&["-tls1_3"]));
    let only = "-tls1_2 -cipher ECDHE-ECDSA-AES128-SHA256";
    let foreign = SServer::start(&only.split(' ').collect::<Vec<_>>());
    let backends = [&*old.address(), &*new.address(), &*foreign.address()];
    let pointsman = Pointsman::start(&pools(&[("tls", &backends, "type: tls")]));
    for (at, expected) in backends.iter().zip(["ok", "ok", "tls_alert 40"]) {
        assert_eq!(verdict(&pointsman, "tls", at), expected);
    }
    pointsman.stop();
}

#[test]
fn certificates_are_judged_where_asked_for() {
    let prepare = |directory: &std::path::Path| {
        certify_by_authority(directory, "own", "DNS:a.example");
        certify(directory, "other", "DNS:a.example");
    };
    let server = SServer::with(&[], prepare);
    let at = [&*server.address()];
    let file = |name: &str| server.directory().join(name).display().to_string();
    let health = |sni: &str, ca_file: &str| {
        format!("type: tls, sni: {sni}, verify: on, ca_file: \"{ca_file}\", interval: 100ms")
    };
    let rows = [
        ("good", health("a.example", &file("own-ca.pem")), "ok"),
        ("name", health("b.example", &file("own-ca.pem")), "certificate"),
        ("authority", health("a.example", &file("other.pem")), "certificate"),
        ("any", "type: tls, sni: b.example".to_owned(), "ok"),
    ];
    let lists: Vec<_> = rows.iter().map(|(name, health, _)| (*name, &at[..], &**health)).collect();
    let pointsman = Pointsman::start(&pools(&lists));
    for (pool, _, expected) in &rows {
        assert_eq!(verdict(&pointsman, pool, at[0]), *expected, "{pool}");
    }

    // What cannot be read fails a reload, and changes nothing.
    for (name, content, expected) in [
        ("missing.pem", None, "cannot be read: No such file"),
        ("empty.pem", Some(""), "no certificate in"),
        ("text.pem", Some("-----BEGIN CERTIFICATE-----\n?\n"), "no list of certificates in PEM"),
    ] {
        if let Some(content) = content {
            fs::write(file(name), content).unwrap();
        }
        let bad = pools(&[("good", &at, &health("a.example", &file(name)))]);
        let error = pointsman.reload(&bad).unwrap_err();
        assert!(
            error.contains("pools.good.health.ca_file: ") && error.contains(expected),
            "{error}"
        );
    }
    // The same file with other authorities in it counts from the next reload on.
    pointsman.configure(&pools(&lists));
    fs::copy(file("other.pem"), file("own-ca.pem")).unwrap();
    pointsman.reload_file().unwrap();
    wait_until("the new authorities", || verdict(&pointsman, "good", at[0]) == "certificate");
    pointsman.stop();
}

/// Answers `ping` as long as it may.
fn respond(socket: &UdpSocket, answering: &AtomicBool) {
    socket.set_read_timeout(Some(10 * MS)).unwrap();
    let mut buffer = [0; 100];
    while answering.load(Relaxed) {
        if let Ok((length, from)) = socket.recv_from(&mut buffer) {
            assert_eq!(&buffer[..length], b"ping\0");
            socket.send_to(b"x pong", from).unwrap();
        }
    }
}

#[test]
fn udp_answers_silence_and_refusal() {
    let backend = Backend::serving(|mut stream: Stream| stream.expect_end());
    let at = [&*backend.address()];
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    let answering = Arc::new(AtomicBool::new(true));
    let responder = std::thread::spawn({
        let answering = answering.clone();
        move || {
            respond(&socket, &answering);
            socket
        }
    });
    let pace =
        format!("type: udp, port: {port}, interval: 100ms, timeout: 100ms, fall: 1, rise: 1");
    let ask = format!("{pace}, send: {{ hex: \"70 69 6e 67 00\" }}");
    let pointsman = Pointsman::start(&pools(&[
        ("pong", &at, &format!("{ask}, expect: pong")),
        ("any", &at, &ask),
        ("other", &at, &format!("{ask}, expect: PONG")),
        ("deaf", &at, &format!("{ask}, expect: off")),
    ]));
    for (pool, expected) in [("pong", "ok"), ("any", "ok"), ("other", "unexpected"), ("deaf", "ok")]
    {
        assert_eq!(verdict(&pointsman, pool, at[0]), expected, "{pool}");
    }
    answering.store(false, Relaxed);
    let socket = responder.join().expect("it ends when told so");
    for (pool, expected) in [("pong", "silent"), ("any", "silent"), ("deaf", "ok")] {
        wait_until(expected, || verdict(&pointsman, pool, at[0]) == expected);
    }
    drop(socket);
    for pool in ["pong", "any", "deaf"] {
        wait_until("a refusal", || verdict(&pointsman, pool, at[0]) == "refused");
        wait_until("it to be down", || state(&pointsman, pool, at[0]) == "down");
    }
    pointsman.stop();
}

/// In doubt it looks more often, and only then.
#[test]
fn doubt_is_resolved_fast() {
    let backend = Hideable::shown();
    let address = backend.address();
    let pace = "interval: 2s, fast_interval: 50ms, rise: 4, fall: 4";
    let pointsman = Pointsman::start(&pools(&[("pool", &[&*address], pace)]));
    for (change, expected) in [("hide", "down"), ("show", "up")] {
        if change == "hide" {
            backend.hide()
        } else {
            backend.show()
        }
        let before = backend.backend().accepted();
        let contrary = if change == "hide" { "refused" } else { "ok" };
        wait_until("a contrary result", || verdict(&pointsman, "pool", &address) == contrary);
        let doubted = Instant::now();
        wait_until(expected, || state(&pointsman, "pool", &address) == expected);
        // Three more, where slow ones would take six seconds.
        assert!(doubted.elapsed() < Duration::from_secs(2), "{:?}", doubted.elapsed());
        pass(500 * MS); // the matter of the test: sure again, it is in no hurry
        assert!(backend.backend().accepted() <= before + 5, "{}", backend.backend().accepted());
    }
    pointsman.stop();
}

/// Pools that ask for the same page share one probe; another page is another.
#[test]
fn equal_checks_are_one_probe() {
    let backend = Backend::serving(|mut stream: Stream| {
        stream.write(b"HTTP/1.1 200 OK\r\n\r\n");
        stream.finish();
        let _request = stream.read_to_end();
    });
    let at = [&*backend.address()];
    let same = "type: http, path: /a, interval: 1h";
    let pointsman = Pointsman::start(&pools(&[
        ("one", &at, same),
        ("two", &at, &format!("{same}, fall: 7")),
        ("three", &at, "type: http, path: /b, interval: 1h"),
    ]));
    for pool in ["one", "two", "three"] {
        assert_eq!(passed(&pointsman, pool, at[0]), 1.0, "{pool}");
    }
    assert_eq!(backend.accepted(), 2);
    pointsman.stop();
}

/// Without a descriptor nothing can be known of a backend, so nothing changes.
#[test]
fn our_own_shortage_is_no_verdict() {
    let (backend, deaf) = wait_for("a port for both", || {
        let backend = Backend::serving(|mut stream: Stream| stream.expect_end());
        let deaf = UdpSocket::bind(backend.address()).ok()?;
        Some((backend, deaf))
    });
    let at = [&*backend.address()];
    let pace = "interval: 50ms, fall: 1";
    let pointsman = Pointsman::start(&pools(&[
        ("tcp", &at, pace),
        ("udp", &at, &format!("{pace}, type: udp, send: x, expect: off, timeout: 10ms")),
    ]));
    let failed = |pool: &str| {
        let labels = [("pool", pool), ("backend", at[0]), ("result", "fail")];
        pointsman.metrics().value("pointsman_backend_checks_total", &labels)
    };
    assert_eq!((failed("tcp"), failed("udp")), (0.0, 0.0));
    // Below all that it has, so that it gets no more.
    pointsman.limit_descriptors(3);
    pass(500 * MS); // the matter of the test: nobody can be asked meanwhile
    pointsman.limit_descriptors(10_000);
    for pool in ["tcp", "udp"] {
        wait_until("checks to go on", || verdict(&pointsman, pool, at[0]) == "ok");
        assert!(failed(pool) >= 1.0, "{pool}");
        assert_eq!(state(&pointsman, pool, at[0]), "up");
    }
    assert!(!pointsman.log().contains("state=down"), "{}", pointsman.log());
    drop(deaf);
    pointsman.stop();
}
