//! The admin server against clients that do what they should not.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{Backend, Background, PATIENCE, Pointsman, one_listener, wait_until};

/// Started from flags, with the admin server on TCP.
fn start(backend: &Backend) -> (Background, String) {
    let backend = backend.address();
    let flags = ["--listen", "127.0.0.1:0", "--backend", &backend, "--admin", "127.0.0.1:0"];
    let running = Background::start(&[&["run"], &flags[..]].concat());
    let admin = running.logged(" admin=");
    (running, admin)
}

fn connect(admin: &str) -> TcpStream {
    let stream = TcpStream::connect(admin).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends a request as it is; the whole answer, and the connection's end.
fn ask(admin: &str, request: &str) -> String {
    let mut stream = connect(admin);
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// A request that ends its connection.
fn request(method: &str, path: &str, headers: &[&str]) -> String {
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    format!("{method} {path} HTTP/1.1\r\n{headers}Content-Length: 0\r\nConnection: close\r\n\r\n")
}

fn status(answer: &str) -> u16 {
    let code = answer.split(' ').nth(1).unwrap_or_else(|| panic!("no HTTP: {answer:?}"));
    code.parse().unwrap()
}

fn error(answer: &str) -> String {
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    let body: Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("no JSON: {answer}"));
    body["error"].as_str().unwrap_or_default().to_owned()
}

/// What a web page in a browser on this machine can send changes nothing.
#[test]
fn changes_need_the_header_and_a_host_of_this_machine() {
    let backend = Backend::echo();
    let (_running, admin) = start(&backend);
    let ours = format!("Host: {admin}");
    for (headers, expected) in [
        (&[&*ours, "X-Pointsman: 1"][..], 422),
        (&["Host: localhost:1", "x-pointsman: 1"], 422),
        (&["Host: [::1]", "X-Pointsman: 1"], 422),
        (&[&*ours], 403),
        (&[&*ours, "X-Pointsman: 2"], 403),
        (&[&*ours, "X-Pointsman:"], 403),
        (&["Host: evil.example", "X-Pointsman: 1"], 403),
        (&["Host: localhost.evil.example", "X-Pointsman: 1"], 403),
        (&["Host: 127.0.0.1@evil.example", "X-Pointsman: 1"], 403),
        (&["Host: 192.0.2.1", "X-Pointsman: 1"], 403),
        (&[&*ours, "Host: evil.example", "X-Pointsman: 1"], 403),
        (&["X-Pointsman: 1"], 403),
    ] {
        let answer = ask(&admin, &request("POST", "/api/v1/reload", headers));
        // From flags there is no file: 422 is what an allowed request gets.
        assert_eq!(status(&answer), expected, "{headers:?}: {answer}");
        assert!(expected == 422 || !error(&answer).is_empty(), "{answer}");
    }
    // A browser asks before it sends a header of its own, and is granted nothing.
    let preflight = ["Origin: http://evil.example", "Access-Control-Request-Headers: x-pointsman"];
    let answer =
        ask(&admin, &request("OPTIONS", "/api/v1/reload", &[&[&*ours], &preflight[..]].concat()));
    assert_eq!(status(&answer), 405);
    assert!(!answer.to_ascii_lowercase().contains("access-control-allow"), "{answer}");
}

#[test]
fn wrong_methods_and_paths() {
    let backend = Backend::echo();
    let (_running, admin) = start(&backend);
    let ours = ["Host: localhost", "X-Pointsman: 1"];
    for (method, path, expected, allow) in [
        ("GET", "/api/v1/reload", 405, "POST"),
        ("DELETE", "/api/v1/reload", 405, "POST"),
        ("POST", "/metrics", 405, "GET, HEAD"),
        ("PUT", "/api/v1/status", 405, "GET, HEAD"),
        ("GET", "/api/v1/nothing", 404, ""),
        ("GET", "/metrics/", 404, ""),
        ("GET", "//metrics", 404, ""),
        ("GET", "/../etc/passwd", 404, ""),
        ("GET", "/metrics?format=text", 200, ""),
        ("HEAD", "/livez", 200, ""),
    ] {
        let answer = ask(&admin, &request(method, path, &ours));
        assert_eq!(status(&answer), expected, "{method} {path}: {answer}");
        let header = format!("allow: {allow}\r\n");
        assert_eq!(answer.contains("allow: "), !allow.is_empty(), "{method} {path}: {answer}");
        assert!(allow.is_empty() || answer.contains(&header), "{method} {path}: {answer}");
        match expected {
            404 => assert_eq!(error(&answer), "no such path"),
            405 => assert_eq!(error(&answer), "this path does not do that"),
            _ => {}
        }
    }
    let head = ask(&admin, &request("HEAD", "/livez", &ours));
    assert!(head.ends_with("\r\n\r\n"), "an answer to HEAD has no body: {head}");
}

/// Whether the size is announced or turns out.
#[test]
fn a_body_too_large_is_refused() {
    let backend = Backend::echo();
    let (_running, admin) = start(&backend);
    let head = "POST /api/v1/reload HTTP/1.1\r\nHost: localhost\r\nX-Pointsman: 1\r\n";
    let body = "x".repeat(100_000);
    let announced = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
    let chunked =
        format!("{head}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    for request in [announced, chunked] {
        let mut stream = connect(&admin);
        // The server may answer and close before it has got everything.
        let _refused = stream.write_all(request.as_bytes());
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 413");
    }
    // 64 KiB are fine.
    let body = "x".repeat(64 * 1024);
    let request =
        format!("{head}Connection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    assert_eq!(status(&ask(&admin, &request)), 422);
}

/// Clients that trickle bytes, send nothing or are not HTTP are closed in time, and as many as may
/// be there at once do not lock the operator out for long.
#[test]
fn slow_clients_are_closed() {
    let backend = Backend::echo();
    let (_running, admin) = start(&backend);
    let begun = Instant::now();
    let mut silent: Vec<_> = (0..63).map(|_| connect(&admin)).collect();
    let mut trickle = connect(&admin);
    trickle.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX-Slow: ").unwrap();
    trickle.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let closed = |stream: &mut TcpStream| match stream.read(&mut [0; 512]) {
        Ok(read) => read == 0,
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    };
    wait_until("the trickling client to be closed", || {
        // One byte more each time does not put off the end.
        trickle.write_all(b"x").is_err() || closed(&mut trickle)
    });
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs(4) && took < Duration::from_secs(9), "{took:?}");
    for stream in &mut silent {
        wait_until("a silent client to be closed", || closed(stream));
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(status(&ask(&admin, &request("GET", "/livez", &["Host: localhost"]))), 200);

    for nonsense in ["\u{16}\u{3}\u{1}\0\u{5}hello", "SSH-2.0-x\r\n\r\n", "GET\r\n\r\n", "\0\0\0\0"]
    {
        let mut stream = connect(&admin);
        stream.write_all(nonsense.as_bytes()).unwrap();
        let mut answer = String::new();
        let _closed = stream.read_to_string(&mut answer);
        assert!(answer.is_empty() || status(&answer) == 400, "{nonsense:?}: {answer}");
    }
    let huge = format!("GET /{} HTTP/1.1\r\n", "x".repeat(2 << 20));
    let mut stream = connect(&admin);
    let _refused = stream.write_all(huge.as_bytes());
    let mut answer = String::new();
    let _closed = stream.read_to_string(&mut answer);
    assert!(answer.is_empty() || status(&answer) >= 400, "{answer}");
    assert_eq!(status(&ask(&admin, &request("GET", "/livez", &["Host: localhost"]))), 200);
}

#[test]
fn the_socket_file_is_the_owners_alone() {
    let backend = Backend::echo();
    let pointsman = Pointsman::start(&one_listener("", &[&backend.address()], ""));
    let socket = pointsman.directory().join("admin.sock");
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    pointsman.stop();
    assert!(!socket.exists(), "it is removed at the end");
}
