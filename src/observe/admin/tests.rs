use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};

use super::*;
use crate::observe::fixture::Fixture;
use crate::state::process::{Command, Phase};
use crate::state::{CheckFailure, CheckReport, Process};

/// A served admin socket; ends when dropped.
struct Server {
    process: Arc<Process>,
    commands: Option<mpsc::Receiver<Command>>,
    address: Address,
    fixture: Arc<crate::snapshot::Snapshot>,
    _runtime: Runtime,
}

fn server(address: &Address) -> Server {
    let Fixture { process, snapshot, inbox } = Fixture::new("edge", &["b1", "b2"]);
    let (_, snapshots) = watch::channel(snapshot.clone());
    let listener = bind(address).unwrap();
    let address = listener.local().clone();
    let context = Context::new(process.clone(), snapshots);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.spawn(serve(listener, Arc::new(context)));
    let commands = Some(inbox.commands);
    Server { process, commands, address, fixture: snapshot, _runtime: runtime }
}

fn tcp() -> Server {
    server(&"127.0.0.1:0".parse().unwrap())
}

impl Server {
    fn ip(&self) -> SocketAddr {
        self.address.ip().unwrap()
    }

    /// Sends one request as it is and reads the answer: status, head, body.
    fn raw(&self, request: &str) -> (u16, String, String) {
        exchange(TcpStream::connect(self.ip()).unwrap(), request)
    }

    fn get(&self, path: &str) -> (u16, String, String) {
        self.raw(&format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
    }

    fn reload(&self, headers: &str) -> (u16, String, String) {
        let head = "POST /api/v1/reload HTTP/1.1\r\nConnection: close\r\n";
        self.raw(&format!("{head}{headers}\r\n"))
    }

    /// Answers every reload with this.
    fn control(&mut self, result: Result<u64, Vec<String>>) {
        let mut commands = self.commands.take().unwrap();
        std::thread::spawn(move || {
            while let Some(Command::Reload(answer)) = commands.blocking_recv() {
                let _ = answer.send(result.clone());
            }
        });
    }
}

fn exchange(mut stream: impl Read + Write, request: &str) -> (u16, String, String) {
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_ascii_lowercase(), body.to_owned())
}

const HEADERS: &str = "Host: localhost\r\nX-Pointsman: 1\r\n";

#[test]
fn paths_and_methods() {
    let server = tcp();
    for (path, status, kind) in [
        ("/metrics", 200, "text/plain; version=0.0.4"),
        ("/metrics?x=1", 200, "text/plain; version=0.0.4"),
        ("/livez", 200, "text/plain"),
        ("/readyz", 503, "text/plain"),
        ("/api/v1/status", 200, "application/json"),
        ("/api/v1/config", 200, "application/json"),
        ("/", 404, "application/json"),
        ("/metrics/", 404, "application/json"),
        ("/api/v1/reload", 405, "application/json"),
    ] {
        let (got, head, _) = server.get(path);
        assert_eq!(got, status, "{path}");
        assert!(head.contains(&format!("content-type: {kind}")), "{path}: {head}");
    }
    let (_, head, _) = server.get("/api/v1/reload");
    assert!(head.contains("allow: post\r\n"), "{head}");
    let (status, head, _) =
        server.raw("DELETE /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert!(status == 405 && head.contains("allow: get, head\r\n"), "{head}");
    let (status, _, body) =
        server.raw("HEAD /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert_eq!((status, body.as_str()), (200, ""));
    let config: Value = serde_json::from_str(&server.get("/api/v1/config").2).unwrap();
    assert_eq!(config["workers"], "auto");
    assert!(server.get("/").2.contains("/metrics"));
    assert!(server.get("/metrics").2.contains("pointsman_connections_total{listener=\"edge\"} 0"));
}

#[test]
fn ready_follows_the_phase() {
    let server = tcp();
    assert_eq!(server.get("/readyz").2, "starting\n");
    server.process.serving.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!((server.get("/readyz").0, server.get("/readyz").2), (200, "ready\n".to_owned()));
    server.process.phase.send_replace(Phase::Leaving);
    assert_eq!((server.get("/readyz").0, server.get("/readyz").2), (503, "leaving\n".to_owned()));
    assert_eq!(server.get("/livez").0, 200);
}

#[test]
fn status_says_what_is_known() {
    let server = tcp();
    server.fixture.listeners[0].listener.state.opened(0);
    let backend = &server.fixture.pools[0].backends[1].state;
    backend.checked(CheckReport {
        ended: std::time::Instant::now(),
        took: Duration::from_micros(1500),
        result: Err(CheckFailure::Status(503)),
    });
    let body: Value = serde_json::from_str(&server.get("/api/v1/status").2).unwrap();
    assert_eq!(body["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!((&body["ready"], &body["generation"]), (&json!(false), &json!(1)));
    let listener = json!({
        "protocol": "tcp", "bind": [], "pools": ["edge"],
        "active": 1, "total": 1, "bytes_in": 0, "bytes_out": 0
    });
    assert_eq!(body["listeners"], json!({ "edge": listener }));
    let pool = &body["pools"]["edge"];
    assert_eq!((&pool["policy"], &pool["panic"]), (&json!("least_conn"), &json!(false)));
    assert_eq!(pool["backends"]["b1"]["last_check"], Value::Null);
    let checked = &pool["backends"]["b2"];
    assert_eq!((&checked["state"], &checked["weight"]), (&json!("up"), &json!(1)));
    let check = &checked["last_check"];
    assert_eq!((&check["ok"], &check["reason"]), (&json!(false), &json!("status")));
    assert_eq!((&check["code"], &check["ms"]), (&json!(503), &json!(1.5)));
    let time: jiff::Timestamp = check["time"].as_str().unwrap().parse().unwrap();
    let age = jiff::Timestamp::now().duration_since(time).as_secs_f64();
    assert!((0.0..60.0).contains(&age), "{check}");
}

#[test]
fn reload_needs_header_and_host() {
    let mut server = tcp();
    server.control(Ok(7));
    for (headers, status) in [
        (HEADERS.to_owned(), 200),
        (format!("Host: {}\r\nX-Pointsman: 1\r\n", server.ip()), 200),
        ("Host: localhost\r\n".to_owned(), 403),
        ("Host: localhost\r\nX-Pointsman: yes\r\n".to_owned(), 403),
        ("Host: rebound.example\r\nX-Pointsman: 1\r\n".to_owned(), 403),
        ("X-Pointsman: 1\r\n".to_owned(), 403),
    ] {
        let (got, _, body) = server.reload(&headers);
        assert_eq!(got, status, "{headers}");
        let body: Value = serde_json::from_str(&body).unwrap();
        if status == 200 {
            assert_eq!(body, json!({"generation": 7}));
        } else {
            assert!(body["error"].is_string(), "{body}");
        }
    }
}

#[test]
fn reload_says_why_not() {
    let mut server = tcp();
    server.control(Err(vec!["a.yaml:1:2: no".to_owned()]));
    let (status, _, body) = server.reload(HEADERS);
    assert_eq!((status, body.trim()), (422, r#"{"errors":["a.yaml:1:2: no"]}"#));
}

#[test]
fn reload_without_control_is_an_error() {
    let mut server = tcp();
    server.commands = None;
    assert_eq!(server.reload(HEADERS).0, 503);
}

#[test]
fn bodies_are_bounded() {
    let mut server = tcp();
    server.control(Ok(1));
    let chunk = "x".repeat(crate::limits::ADMIN_BODY + 1);
    let headers = format!("{HEADERS}Content-Length: {}\r\n", chunk.len());
    let head = "POST /api/v1/reload HTTP/1.1\r\nConnection: close\r\n";
    let mut stream = TcpStream::connect(server.ip()).unwrap();
    // The server may answer and close before it has taken everything.
    let _ = stream.write_all(format!("{head}{headers}\r\n{chunk}").as_bytes());
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
}

#[test]
fn silent_clients_take_no_place_for_long() {
    let server = tcp();
    let mut silent: Vec<_> =
        (0..ADMIN_CONNECTIONS).map(|_| TcpStream::connect(server.ip()).unwrap()).collect();
    for (index, stream) in silent.iter_mut().enumerate() {
        if index % 2 == 0 {
            stream.write_all(b"GET /livez HT").unwrap();
        }
    }
    // All places are taken: this one waits for the others to be given up.
    assert_eq!(server.get("/livez").0, 200);
}

#[test]
fn unix_socket_is_private_and_removed() {
    let path = std::env::temp_dir().join(format!("pointsman-admin-{}.sock", std::process::id()));
    let address = Address::Unix(path.clone());
    let mut server = server(&address);
    server.control(Ok(3));
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let request = "POST /api/v1/reload HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let answer = exchange(UnixStream::connect(&path).unwrap(), request);
    assert_eq!((answer.0, answer.2.trim()), (200, r#"{"generation":3}"#));
    let taken = bind(&address).unwrap_err();
    assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
    drop(server);
    assert!(!path.exists());
}

#[test]
fn stale_socket_is_replaced_and_other_files_are_not() {
    let path = std::env::temp_dir().join(format!("pointsman-stale-{}.sock", std::process::id()));
    let address = Address::Unix(path.clone());
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let first = bind(&address).unwrap();
    // A successor has put its own socket there: dropping the first must not remove it.
    fs::remove_file(&path).unwrap();
    let second = bind(&address).unwrap();
    drop(first);
    assert!(path.exists());
    drop(second);
    assert!(!path.exists());
    fs::write(&path, "precious").unwrap();
    assert_eq!(bind(&address).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(fs::read(&path).unwrap(), b"precious");
    fs::remove_file(&path).unwrap();
}
