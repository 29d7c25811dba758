//! Sessions as the operator sees them: listed, ended, and closed when their backend goes down.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::hello::Hello;
use crate::harness::{
    Backend, Background, Hideable, Pointsman, Stream, one_listener, pass, wait_until,
};

const MS: Duration = Duration::from_millis(1);

fn list(pointsman: &Pointsman, query: &str) -> Value {
    let (status, body) = pointsman.admin("GET", &format!("/api/v1/sessions{query}"));
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

fn held(pointsman: &Pointsman, bytes: u64) -> Stream {
    let mut client = pointsman.connect("edge");
    client.send(bytes);
    client.receive(bytes);
    client
}

#[test]
fn the_largest_come_first() {
    let backend = Backend::echo();
    let address = backend.address();
    let yaml = one_listener("", &[&address], "");
    let pointsman = Pointsman::start(&format!("workers: 3\n{yaml}"));
    assert_eq!(list(&pointsman, ""), serde_json::json!({"total": 0, "sessions": []}));
    let clients: Vec<_> = [50, 3000, 7, 100_000].map(|bytes| held(&pointsman, bytes)).into();
    let all = list(&pointsman, "");
    assert_eq!(all["total"], 4);
    let sessions = all["sessions"].as_array().unwrap();
    for (session, index) in sessions.iter().zip([3, 1, 0, 2]) {
        let (client, bytes) = (&clients[index], clients[index].sent());
        assert_eq!(session["client"], client.local());
        assert_eq!((&session["bytes_in"], &session["bytes_out"]), (&bytes.into(), &bytes.into()));
        assert_eq!((&session["listener"], &session["state"]), (&"edge".into(), &"relaying".into()));
        assert_eq!((&session["pool"], &session["backend"]), (&"pool".into(), &(*address).into()));
        assert!(session["sni"].is_null() && session["age_seconds"].as_f64().unwrap() < 60.0);
    }
    let few = list(&pointsman, "?limit=2");
    assert_eq!(few["total"], 4);
    assert_eq!(few["sessions"].as_array().unwrap().len(), 2);
    assert_eq!(few["sessions"][1]["client"], clients[1].local());
    let table = pointsman.command(&["sessions", "--limit", "1"]).success();
    let id = sessions[0]["id"].as_str().unwrap();
    assert!(table.contains(id) && table.contains("97.7 KiB"), "{table}");
    assert!(table.ends_with("and 3 smaller ones; --limit shows more\n"), "{table}");
    // The id is the access log's.
    drop(clients);
    let mut logged: Vec<_> =
        pointsman.access_log(4).iter().map(|record| record.text("id").to_owned()).collect();
    let mut listed: Vec<_> =
        sessions.iter().map(|session| session["id"].as_str().unwrap().to_owned()).collect();
    logged.sort();
    listed.sort();
    assert_eq!(logged, listed);
    for query in ["?limit=0", "?limit=10001", "?limit=x", "?pool=www"] {
        let (status, body) = pointsman.admin("GET", &format!("/api/v1/sessions{query}"));
        assert!(status == 400 && body.contains("limit"), "{query}: {body}");
    }
    pointsman.stop();
}

#[test]
fn sessions_say_how_far_they_have_come() {
    let (hole, echo) = (Backend::black_hole(), Backend::echo());
    let yaml = format!(
        "access_log: {{ path: \"DIR/access.log\" }}\n\
         listeners:\n  edge:\n    bind: 127.0.0.1:0\n    routes:\n      \
         - {{ sni: away.example, pool: away }}\n      - {{ pool: pool }}\n\
         pools:\n  away: {{ backends: [\"{}\"], health: off, connect: {{ timeout: 1h }} }}\n  \
         pool: {{ backends: [\"{}\"], health: off }}\n",
        hole.address(),
        echo.address()
    );
    let pointsman = Pointsman::start(&yaml);
    let silent = pointsman.connect("edge");
    let mut connecting = pointsman.connect("edge");
    connecting.write(&Hello::to("away.example").bytes());
    let relaying = held(&pointsman, 5);
    let of = |client: &Stream| -> Value {
        let all = list(&pointsman, "");
        let sessions = all["sessions"].as_array().unwrap().iter();
        let mut own = sessions.filter(|session| session["client"] == client.local());
        own.next().cloned().unwrap_or_default()
    };
    for (client, state, pool, sni) in [
        (&silent, "preread", Value::Null, Value::Null),
        (&connecting, "connecting", "away".into(), "away.example".into()),
        (&relaying, "relaying", "pool".into(), Value::Null),
    ] {
        wait_until(state, || of(client)["state"] == state);
        let session = of(client);
        assert_eq!((&session["pool"], &session["sni"]), (&pool, &sni), "{session}");
        assert_eq!(session["backend"].is_null(), state != "relaying");
    }
    // One ends wherever it is.
    for mut client in [silent, connecting, relaying] {
        let id = of(&client)["id"].as_str().unwrap().to_owned();
        assert_eq!(pointsman.admin("DELETE", &format!("/api/v1/sessions/{id}")).0, 200);
        client.expect_end();
        // It waits for the client's FIN.
        assert_eq!(of(&client)["state"], "closing");
        assert_eq!(pointsman.admin("DELETE", &format!("/api/v1/sessions/{id}")).0, 404);
    }
    assert!(pointsman.access_log(3).iter().all(|record| record.text("termination") == "drained"));
    assert_eq!(pointsman.wait_idle().closed("edge", "drained"), 3.0);
    pointsman.stop();
}

#[test]
fn one_session_ends_by_its_id() {
    let backend = Backend::manual();
    let pointsman = Pointsman::start(&one_listener("", &[&backend.address()], ""));
    let (mut client, mut other) = (pointsman.connect("edge"), pointsman.connect("edge"));
    let mut servers = [backend.accept(), backend.accept()];
    let all = list(&pointsman, "");
    let mut sessions = all["sessions"].as_array().unwrap().iter();
    let own = sessions.find(|session| session["client"] == client.local()).unwrap();
    let id = own["id"].as_str().unwrap();
    let answer = pointsman.command(&["sessions", "end", id]).success();
    assert_eq!(answer, format!("{id}: told to end\n"));
    client.expect_end();
    wait_until("one of the backend's sides", || servers.iter().any(Stream::is_hung_up));
    let ended = servers.iter_mut().position(|server| server.is_hung_up()).unwrap();
    servers[ended].expect_end();
    // The other one goes on.
    other.send(10);
    servers[1 - ended].receive(10);
    drop(client);
    let record = pointsman.access_log(1).remove(0);
    assert_eq!((record.text("id"), record.text("termination")), (id, "drained"));
    wait_until("it to be gone", || list(&pointsman, "")["total"] == 1);
    for (id, code, expected) in [
        (id, 1, "404 Not Found: there is no such session"),
        ("0", 1, "404 Not Found: there is no such session"),
        ("me", 1, "400 Bad Request: an id is 1 to 16 hex digits"),
    ] {
        let answer = pointsman.command(&["sessions", "end", id]);
        assert_eq!(answer.code, code);
        assert!(answer.stderr.contains(expected), "{answer:?}");
    }
    pointsman.signal(rustix::process::Signal::TERM);
    drop((other, servers));
    pointsman.stop();
}

/// While the process is stopping the operator sees what it waits for, and can end it.
#[test]
fn sessions_are_listed_while_draining() {
    let backend = Backend::echo();
    let yaml = one_listener("", &[&backend.address()], "");
    let mut pointsman = Pointsman::start(&format!("workers: 3\nshutdown: {{ grace: 1h }}\n{yaml}"));
    let mut client = held(&pointsman, 10);
    let threads = pointsman.usage().threads;
    pointsman.signal(rustix::process::Signal::TERM);
    wait_until("the idle workers to end", || pointsman.usage().threads == threads - 2);
    let all = list(&pointsman, "");
    assert_eq!((&all["total"], &all["sessions"][0]["client"]), (&1.into(), &client.local().into()));
    let id = all["sessions"][0]["id"].as_str().unwrap().to_owned();
    pointsman.command(&["sessions", "end", &id]).success();
    client.expect_end();
    drop(client);
    assert_eq!(pointsman.wait().code(), Some(0));
    assert_eq!(pointsman.access_log(1)[0].text("termination"), "drained");
}

/// Who may not change anything may not see who is connected, nor end or drain anything.
#[test]
fn lists_and_changes_need_the_header_and_a_host_of_this_machine() {
    let backend = Backend::echo();
    let address = backend.address();
    let flags = ["--listen", "127.0.0.1:0", "--backend", &address, "--admin", "127.0.0.1:0"];
    let running = Background::start(&[&["run"], &flags[..]].concat());
    let admin = running.logged(" admin=");
    let ask = |request: String| {
        use std::io::{Read, Write};
        let mut stream = std::net::TcpStream::connect(&admin).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().parse::<u16>().unwrap()
    };
    let backend = format!("/api/v1/pools/pool/backends/{address}");
    let body = "{\"weight\":1}";
    for (method, path, allowed) in [
        ("GET", "/api/v1/sessions", 200),
        ("HEAD", "/api/v1/sessions", 200),
        ("DELETE", "/api/v1/sessions/1", 404),
        ("POST", &backend, 200),
    ] {
        for (headers, expected) in [
            ("Host: localhost\r\nX-Pointsman: 1\r\n", allowed),
            ("Host: localhost\r\n", 403),
            ("Host: evil.example\r\nX-Pointsman: 1\r\n", 403),
        ] {
            let body = if method == "POST" { body } else { "" };
            let length = body.len();
            let got = ask(format!(
                "{method} {path} HTTP/1.1\r\n{headers}Content-Length: {length}\r\n\
                 Connection: close\r\n\r\n{body}"
            ));
            assert_eq!(got, expected, "{method} {path} {headers}");
        }
    }
    // What the status shows anyway.
    assert_eq!(ask(format!("GET {backend} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")), 200);
}

fn echoing() -> Hideable {
    Hideable::serving(|stream| {
        let socket = stream.socket();
        let _end = std::io::copy(&mut &**socket, &mut &**socket);
    })
}

/// Sessions of a backend that cannot be connected to any more, to which they still are.
struct Orphans {
    pointsman: Pointsman,
    backend: Hideable,
    _other: Backend,
    /// On the backend that went down, and on the other one.
    clients: [Vec<Stream>; 2],
}

impl Orphans {
    fn new(pool: &str, each: usize) -> Self {
        let (backend, other) = (echoing(), Backend::echo());
        let settings = format!("balance: round_robin, {pool}");
        let yaml = one_listener("", &[&backend.address(), &other.address()], &settings);
        let health = "health: { interval: 50ms, rise: 1, fall: 2 }";
        let yaml = format!("workers: 2\n{}", yaml.replace("health: off", health));
        let pointsman = Pointsman::start(&yaml);
        let all: Vec<Stream> = (0..2 * each).map(|_| held(&pointsman, 1)).collect();
        let listed = list(&pointsman, "");
        let on_it = |client: &Stream| {
            let mut sessions = listed["sessions"].as_array().unwrap().iter();
            let own = sessions.find(|session| session["client"] == client.local()).unwrap();
            own["backend"] == backend.address()
        };
        let (down, kept): (Vec<_>, Vec<_>) = all.into_iter().partition(on_it);
        assert_eq!((down.len(), kept.len()), (each, each));
        backend.hide();
        let state = || pointsman.backend(&backend.address())["state"].clone();
        wait_until("it to be down", || state() == "down");
        Orphans { pointsman, backend, _other: other, clients: [down, kept] }
    }

    fn still_go_on(clients: &mut [Stream]) {
        for client in clients {
            client.send(10);
            client.receive(10);
        }
    }
}

#[test]
fn sessions_of_a_backend_that_is_down_are_kept_by_default() {
    let mut orphans = Orphans::new("close_spread: 1ms", 5);
    pass(200 * MS);
    orphans.clients.iter_mut().for_each(|clients| Orphans::still_go_on(clients));
}

#[test]
fn sessions_of_a_backend_that_is_down_are_closed_one_after_the_other() {
    const EACH: usize = 20;
    let since = Instant::now();
    let mut orphans = Orphans::new("on_down: close, close_spread: 2s", EACH);
    let down = since.elapsed();
    let [clients, kept] = &mut orphans.clients;
    let mut ends = Vec::new();
    while !clients.is_empty() {
        wait_until("the next close", || clients.iter().any(Stream::is_hung_up));
        clients.retain_mut(|client| {
            let over = client.is_hung_up();
            if over {
                client.expect_end();
                ends.push(since.elapsed());
            }
            !over
        });
    }
    let (first, last) = (ends[0], ends[EACH - 1]);
    assert!(last - first >= 1500 * MS, "a stampede: {first:?} to {last:?}");
    assert!(last <= down + 4000 * MS, "{down:?}, then {first:?} to {last:?}");
    Orphans::still_go_on(kept);
    let records = orphans.pointsman.access_log(EACH);
    assert_eq!(records.len(), EACH);
    assert!(records.iter().all(|record| record.text("termination") == "backend_down"));
    assert!(records.iter().all(|record| record.text("backend") == orphans.backend.address()));
}

/// Those that are left when it comes up again are kept.
#[test]
fn closing_ends_when_the_backend_is_back() {
    let mut orphans = Orphans::new("on_down: close, close_spread: 1h", 20);
    let (pointsman, backend) = (&orphans.pointsman, &orphans.backend);
    backend.show();
    let state = || pointsman.backend(&backend.address())["state"].clone();
    wait_until("it to be up", || state() == "up");
    pass(200 * MS);
    let down = &mut orphans.clients[0];
    down.retain(|client| !client.is_hung_up());
    assert!(down.len() >= 18, "{}", down.len());
    Orphans::still_go_on(down);
}
