//! A hello whose backend ends the connection without a byte goes to another one
//! (`connect.replay_hello`).

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::harness::hello::Hello;
use crate::harness::{
    Backend, Metrics, Pointsman, Record, SServer, Stream, captured, finish, pass, wait_for,
    wait_until,
};

const MS: Duration = Duration::from_millis(1);

fn hello() -> Vec<u8> {
    Hello::to("www.example.com").bytes()
}

/// A pool behind a listener that reads hellos. The last backend is a backup: it is tried after the
/// others. `connect` and `pool` are further keys.
fn in_order(backends: &[&Backend], connect: &str, pool: &str) -> String {
    let replay = if connect.contains("replay_hello") { "" } else { "replay_hello: true, " };
    let list = backends.iter().enumerate().map(|(place, backend)| {
        let backup = place + 1 == backends.len() && place > 0;
        let address = backend.address();
        format!("{{ address: \"{address}\", backup: {backup} }}")
    });
    let list: Vec<_> = list.collect();
    let pool = if pool.is_empty() { String::new() } else { format!(", {pool}") };
    format!(
        "workers: 1\n\
         listeners: {{ edge: {{ bind: \"127.0.0.1:0\", pool: pool, preread: {{ always: true }} }} }}\n\
         pools: {{ pool: {{ backends: [{}], health: off, connect: {{ {replay}{connect} }}{pool} }} }}\n",
        list.join(", ")
    )
}

/// Takes this flight, answers with a text and its length, and closes after its client.
fn good(flight: &[u8]) -> Backend {
    let flight = flight.to_vec();
    Backend::serving(move |mut stream| {
        assert_eq!(stream.read(flight.len()), flight);
        stream.write(b"answer");
        stream.expect_end();
    })
}

/// How a backend ends a connection before its first byte.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bad {
    /// FIN, when it has read all.
    Closes,
    /// RST, when it has read all.
    Resets,
    /// FIN in its direction only.
    HalfCloses,
    /// RST, with nearly everything unread.
    Drops,
}

impl Bad {
    const ALL: [Bad; 4] = [Bad::Closes, Bad::Resets, Bad::HalfCloses, Bad::Drops];

    fn backend(self, flight: &[u8]) -> Backend {
        let bytes = flight.len();
        Backend::serving(move |mut stream| {
            // Not before it is known to be connected.
            stream.read(if self == Bad::Drops { 1 } else { bytes });
            match self {
                Bad::Closes => {}
                Bad::HalfCloses => {
                    stream.finish();
                    // It goes on to read until it is closed.
                    let _end = stream.read_to_end();
                }
                Bad::Resets | Bad::Drops => {
                    stream.socket().set_linger(Some(Duration::ZERO)).unwrap();
                }
            }
        })
    }
}

fn total(metrics: &Metrics, name: &str) -> f64 {
    metrics.value(&format!("pointsman_pool_{name}_total"), &[("pool", "pool")])
}

fn bytes_to(metrics: &Metrics, backend: &Backend) -> f64 {
    let address = backend.address();
    let labels = [("pool", "pool"), ("backend", address.as_str()), ("direction", "in")];
    metrics.value("pointsman_backend_bytes_total", &labels)
}

fn outcomes(record: &Record) -> Vec<String> {
    record.attempts().into_iter().map(|(_, outcome)| outcome).collect()
}

/// Sends a flight and gets the answer of [`good`].
fn expect_answer(pointsman: &Pointsman, flight: &[u8]) {
    let mut client = pointsman.connect("edge");
    client.write(flight);
    assert_eq!(client.read(6), b"answer");
    client.finish();
    client.expect_end();
}

#[test]
fn the_client_notices_nothing() {
    for flight in [hello(), captured("chromium-156"), captured("firefox-esr")] {
        for bad in Bad::ALL {
            let (first, second) = (bad.backend(&flight), good(&flight));
            let pointsman = Pointsman::start(&in_order(&[&first, &second], "", ""));
            expect_answer(&pointsman, &flight);
            let record = pointsman.access_log(1).remove(0);
            assert_eq!(
                record.attempts(),
                [
                    (first.address(), "early_close".to_owned()),
                    (second.address(), "connected".to_owned())
                ],
                "{bad:?}"
            );
            assert_eq!(record.text("backend"), second.address());
            assert_eq!(record.text("termination"), "client_closed");
            let [bytes_in, bytes_out] = ["bytes_in", "bytes_out"].map(|key| record.number(key));
            assert_eq!((bytes_in, bytes_out), (flight.len() as f64, 6.0), "{bad:?}");
            assert!(record.number("first_byte_ms") <= record.number("duration_ms"));
            let metrics = pointsman.wait_idle();
            let listener = [("listener", "edge"), ("direction", "in")];
            assert_eq!(metrics.value("pointsman_bytes_total", &listener), bytes_in);
            assert_eq!(bytes_to(&metrics, &second), bytes_in);
            assert_eq!(bytes_to(&metrics, &first), bytes_in, "it has had them");
            assert_eq!((total(&metrics, "replays"), total(&metrics, "retries")), (1.0, 1.0));
            pointsman.stop();
        }
    }
}

/// A session that came to nothing as if there were no replay.
fn expect_ended(pointsman: &Pointsman, termination: &str, attempts: &[&str]) -> Record {
    let record = pointsman.access_log(1).remove(0);
    assert_eq!(record.text("termination"), termination, "{record:?}");
    assert_eq!(outcomes(&record), attempts);
    let metrics = pointsman.wait_idle();
    assert_eq!(total(&metrics, "replays"), attempts.len() as f64 - 1.0);
    record
}

/// A session up to where the first backend has the flight, and nothing has come back.
struct Begun {
    client: Stream,
    server: Stream,
    other: Backend,
    pointsman: Pointsman,
}

fn begun(flight: &[u8], connect: &str) -> Begun {
    let (first, other) = (Backend::manual(), Backend::manual());
    let pointsman = Pointsman::start(&in_order(&[&first, &other], connect, ""));
    let mut client = pointsman.connect("edge");
    client.write(flight);
    let mut server = first.accept();
    assert_eq!(server.read(flight.len()), flight);
    Begun { client, server, other, pointsman }
}

#[test]
fn not_after_a_byte() {
    for reset in [false, true] {
        let Begun { mut client, mut server, other, pointsman } = begun(&hello(), "");
        server.write(b"x");
        assert_eq!(client.read(1), b"x");
        if reset {
            server.reset();
            client.expect_reset();
        } else {
            drop(server);
            client.expect_end();
        }
        drop(client);
        let termination = if reset { "backend_reset" } else { "backend_closed" };
        expect_ended(&pointsman, termination, &["connected"]);
        assert!(!other.has_waiting());
    }
}

/// The byte may be there together with the end.
#[test]
fn not_after_a_byte_at_the_last_moment() {
    for reset in [false, true] {
        let Begun { mut client, mut server, other, pointsman } = begun(&hello(), "");
        pointsman.freeze();
        server.write(b"x");
        if reset {
            server.reset()
        } else {
            drop(server)
        }
        pointsman.signal(Signal::CONT);
        assert_eq!(client.read(1), b"x");
        if reset {
            client.expect_reset()
        } else {
            client.expect_end()
        }
        drop(client);
        let termination = if reset { "backend_reset" } else { "backend_closed" };
        expect_ended(&pointsman, termination, &["connected"]);
        assert!(!other.has_waiting());
    }
}

#[test]
fn not_after_more_of_the_client() {
    for reset in [false, true] {
        let Begun { mut client, mut server, other, pointsman } = begun(&hello(), "");
        client.write(b"more");
        assert_eq!(server.read(4), b"more");
        if reset {
            server.reset();
            client.expect_reset();
        } else {
            drop(server);
            client.expect_end();
        }
        drop(client);
        let termination = if reset { "backend_reset" } else { "backend_closed" };
        let record = expect_ended(&pointsman, termination, &["connected"]);
        assert_eq!(record.number("bytes_in"), hello().len() as f64 + 4.0);
        assert!(!other.has_waiting());
    }
}

/// More may also have come together with the hello, or with the backend's end.
#[test]
fn not_after_more_at_once() {
    let flight = [hello(), b"early data".to_vec()].concat();
    let Begun { mut client, server, other, pointsman } = begun(&flight, "");
    drop(server);
    client.expect_end();
    drop(client);
    expect_ended(&pointsman, "backend_closed", &["connected"]);
    assert!(!other.has_waiting());

    let Begun { mut client, server, other, pointsman } = begun(&hello(), "");
    pointsman.freeze();
    drop(server);
    client.write(b"more");
    pointsman.signal(Signal::CONT);
    client.expect_end();
    drop(client);
    let record = pointsman.access_log(1).remove(0);
    assert_eq!(outcomes(&record), ["connected"], "{record:?}");
    assert!(!other.has_waiting());
}

/// What a client does otherwise goes where it should, and there is no replay after it.
#[test]
fn a_client_that_finishes_or_leaves() {
    let Begun { mut client, mut server, other, pointsman } = begun(&hello(), "");
    client.finish();
    server.expect_end();
    server.write(b"answer");
    drop(server);
    assert_eq!(client.read_to_end(), b"answer");
    expect_ended(&pointsman, "client_closed", &["connected"]);

    let Begun { client, mut server, other: another, pointsman } = begun(&hello(), "");
    client.finish();
    server.expect_end();
    drop(server);
    expect_ended(&pointsman, "client_closed", &["connected"]);

    let Begun { client, mut server, other: third, pointsman } = begun(&hello(), "");
    client.reset();
    server.expect_reset();
    expect_ended(&pointsman, "client_reset", &["connected"]);
    assert!(![other, another, third].iter().any(Backend::has_waiting));
}

#[test]
fn a_client_that_leaves_while_it_goes_on() {
    let (first, second) = (Bad::Closes.backend(&hello()), Backend::black_hole());
    let yaml = in_order(&[&first, &second], "timeout: 10s, total_timeout: 10s", "");
    let pointsman = Pointsman::start(&yaml);
    let mut client = pointsman.connect("edge");
    client.write(&hello());
    wait_until("the second attempt", || total(&pointsman.metrics(), "retries") == 1.0);
    client.reset();
    let record = pointsman.access_log(1).remove(0);
    assert_eq!(record.text("termination"), "client_reset");
    assert_eq!(outcomes(&record), ["early_close", "abandoned"]);
    pointsman.wait_idle();
}

/// It ends as the last backend has ended it.
#[test]
fn when_nobody_takes_it() {
    let flight = hello();
    for bad in Bad::ALL {
        let backends = [(); 3].map(|()| bad.backend(&flight));
        let all: Vec<_> = backends.iter().collect();
        for (attempts, backends) in [(5, &all[..]), (2, &all[..]), (3, &all[..1])] {
            let yaml = in_order(backends, &format!("attempts: {attempts}"), "");
            let pointsman = Pointsman::start(&yaml);
            let mut client = pointsman.connect("edge");
            client.write(&flight);
            let reset = matches!(bad, Bad::Resets | Bad::Drops);
            if reset {
                client.expect_reset()
            } else {
                client.expect_end()
            }
            drop(client);
            let termination = if reset { "backend_reset" } else { "backend_closed" };
            let tried = attempts.min(backends.len());
            let record = expect_ended(&pointsman, termination, &vec!["early_close"; tried]);
            assert_eq!(record.number("bytes_in"), flight.len() as f64);
            let mut visited: Vec<_> = record.attempts().into_iter().map(|(b, _)| b).collect();
            visited.sort_unstable();
            visited.dedup();
            assert_eq!(visited.len(), tried, "nobody twice: {record:?}");
            pointsman.stop();
        }
    }
}

#[test]
fn past_one_that_refuses() {
    let flight = hello();
    let (first, second, third) = (Bad::Closes.backend(&flight), Backend::refusing(), good(&flight));
    let pointsman = Pointsman::start(&in_order(&[&first, &second, &third], "attempts: 4", ""));
    expect_answer(&pointsman, &flight);
    let record = pointsman.access_log(1).remove(0);
    let outcomes = outcomes(&record);
    assert_eq!(outcomes.len(), 3, "{record:?}");
    assert!(outcomes[..2].contains(&"early_close".to_owned()), "{record:?}");
    assert!(outcomes[..2].contains(&"refused".to_owned()), "{record:?}");
    assert_eq!(record.text("backend"), third.address());
    assert!(record.number("first_byte_ms") <= record.number("duration_ms"));
}

#[test]
fn within_the_budget() {
    let flight = hello();
    let (first, second) = (Bad::Closes.backend(&flight), good(&flight));
    let yaml = in_order(&[&first, &second], "retry_budget: 0", "outlier: off");
    let pointsman = Pointsman::start(&yaml);
    let edge = pointsman.address("edge");
    let mut answered = 0;
    wait_for("the budget to be spent", || {
        let mut client = Stream::connect(&edge);
        client.write(&flight);
        let answer = std::io::Read::read(&mut &**client.socket(), &mut [0; 6]).unwrap();
        answered += usize::from(answer == 6);
        (answer == 0).then_some(())
    });
    // What is always allowed: 100, and 10 a second.
    assert!((100..=400).contains(&answered), "{answered}");
    let metrics = pointsman.wait_idle();
    assert_eq!(total(&metrics, "budget_exhausted"), 1.0);
    assert_eq!(total(&metrics, "replays"), answered as f64);
    let last = pointsman.stop().pop().unwrap();
    assert_eq!((last.text("termination"), outcomes(&last).len()), ("backend_closed", 1));
}

#[test]
fn within_the_time() {
    let connect = "timeout: 100ms, total_timeout: 300ms";
    let Begun { mut client, server, other, pointsman } = begun(&hello(), connect);
    pass(400 * MS); // the matter of the test
    drop(server);
    client.expect_end();
    drop(client);
    // By then it is an ordinary session.
    expect_ended(&pointsman, "backend_closed", &["connected"]);
    assert!(!other.has_waiting());
}

/// Timeouts count from when the hello was sent, whether they are short or long.
#[test]
fn silence_ends_it_as_usual() {
    for (idle, total) in [(300, 5000), (600, 300)] {
        let silent = Backend::serving(|mut stream| _ = stream.read_to_end());
        let other = Backend::manual();
        let connect = format!("timeout: 100ms, total_timeout: {total}ms");
        let yaml = in_order(&[&silent, &other], &connect, "");
        let yaml = yaml.replace("preread:", &format!("timeouts: {{ idle: {idle}ms }}, preread:"));
        let pointsman = Pointsman::start(&yaml);
        let mut client = pointsman.connect("edge");
        client.write(&hello());
        let begun = Instant::now();
        client.expect_end();
        let took = begun.elapsed();
        drop(client);
        expect_ended(&pointsman, "idle_timeout", &["connected"]);
        let idle = idle * MS;
        assert!((idle - 50 * MS..idle + 250 * MS).contains(&took), "{took:?} for {idle:?}");
        assert!(!other.has_waiting());
    }
}

/// An order reaches a session that waits for the first byte.
#[test]
fn it_can_be_ended_meanwhile() {
    let Begun { mut client, mut server, other, pointsman } = begun(&hello(), "");
    let (_, sessions) = pointsman.admin("GET", "/api/v1/sessions");
    let sessions: serde_json::Value = serde_json::from_str(&sessions).unwrap();
    let session = &sessions["sessions"][0];
    assert_eq!(session["state"], "relaying", "{session}");
    let id = session["id"].as_str().unwrap();
    assert_eq!(pointsman.admin("DELETE", &format!("/api/v1/sessions/{id}")).0, 200);
    client.expect_end();
    server.expect_end();
    drop((client, server));
    expect_ended(&pointsman, "drained", &["connected"]);
    assert!(!other.has_waiting());
}

/// Only a hello is sent again, and only where that is asked for.
#[test]
fn not_without_a_hello() {
    let Begun { mut client, server, other, pointsman } = begun(b"GET / HTTP/1.1\r\n\r\n", "");
    drop(server);
    client.expect_end();
    drop(client);
    expect_ended(&pointsman, "backend_closed", &["connected"]);
    assert!(!other.has_waiting());

    let Begun { mut client, server, other, pointsman } = begun(&hello(), "replay_hello: false");
    drop(server);
    client.expect_end();
    drop(client);
    expect_ended(&pointsman, "backend_closed", &["connected"]);
    assert!(!other.has_waiting());
}

/// With `early_close` the backend is ejected for it, and no client has noticed anything.
#[test]
fn it_counts_for_passive_detection() {
    for (early_close, ejected) in [(true, true), (false, false)] {
        let flight = hello();
        let (first, second) = (Bad::Closes.backend(&flight), good(&flight));
        let outlier = format!("outlier: {{ early_close: {early_close} }}");
        let pointsman = Pointsman::start(&in_order(&[&first, &second], "", &outlier));
        for _ in 0..3 {
            expect_answer(&pointsman, &flight);
        }
        let state = || pointsman.backend(&first.address())["state"].clone();
        if ejected {
            wait_until("an ejection", || state() == "ejected");
            expect_answer(&pointsman, &flight);
            let last = pointsman.access_log(4).pop().unwrap();
            assert_eq!(outcomes(&last), ["connected"]);
        } else {
            assert_eq!(state(), "up");
        }
        pointsman.stop();
    }
}

#[test]
fn from_a_ready_connection() {
    let flight = hello();
    let second = good(&flight);
    let first = Backend::serving({
        let bytes = flight.len();
        move |stream| {
            let mut left = vec![0; bytes];
            let _some = std::io::Read::read_exact(&mut &**stream.socket(), &mut left);
        }
    });
    let yaml = in_order(&[&first, &second], "ready: 1", "");
    let pointsman = Pointsman::start(&yaml);
    let kept =
        || pointsman.metrics().value("pointsman_pool_ready_connections", &[("pool", "pool")]);
    wait_until("one to be ready", || kept() == 1.0);
    expect_answer(&pointsman, &flight);
    let record = pointsman.access_log(1).remove(0);
    assert_eq!(outcomes(&record), ["early_close", "connected"], "a backup has none ready");
    pointsman.stop();
}

#[test]
fn for_clients_of_a_unix_socket() {
    let flight = hello();
    let (first, second) = (Bad::Closes.backend(&flight), good(&flight));
    let yaml = in_order(&[&first, &second], "", "").replace("127.0.0.1:0", "unix:DIR/edge");
    let pointsman = Pointsman::start(&yaml);
    expect_answer(&pointsman, &flight);
    let record = pointsman.access_log(1).remove(0);
    assert_eq!(outcomes(&record), ["early_close", "connected"]);
    pointsman.stop();
}

/// The hello may come in pieces; it goes on as a whole.
#[test]
fn a_hello_in_pieces() {
    let flight = captured("chromium-156");
    let (first, second) = (Bad::Closes.backend(&flight), good(&flight));
    let pointsman = Pointsman::start(&in_order(&[&first, &second], "", ""));
    let mut client = pointsman.connect("edge");
    for piece in flight.chunks(400) {
        client.write(piece);
        pointsman.wait_received();
    }
    assert_eq!(client.read(6), b"answer");
    drop(client);
    let record = pointsman.access_log(1).remove(0);
    assert_eq!(outcomes(&record), ["early_close", "connected"]);
    pointsman.stop();
}

/// A real client does its handshake with the second backend, and knows nothing of the first.
#[test]
fn curl_and_openssl_shake_hands() {
    let server = SServer::start(&[]);
    for bad in Bad::ALL {
        let first = bad.backend(&[0; 100]);
        let second = Backend::refusing();
        let yaml =
            in_order(&[&first, &second], "", "").replace(&second.address(), &server.address());
        let pointsman = Pointsman::start(&yaml);
        let url = format!("https://{}/", pointsman.address("edge"));
        let answer = finish(Command::new("curl").args(["-sSk", "--max-time", "20", &url]));
        assert_eq!(answer.code, 0, "{bad:?}: {answer:?}");
        let records = pointsman.stop();
        assert_eq!(outcomes(&records[0]), ["early_close", "connected"], "{bad:?}");
    }
}
