//! System calls a connection, which are nearly all that one costs, counted by strace. Without an
//! access log: how many records are written at a time is the machine's business.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use crate::harness::{
    Backend, Pointsman, Stream, UdpBackend, UdpClient, fresh_directory, one_listener,
    one_udp_listener, wait_for,
};

const CLIENTS: usize = 64;
const BYTES: u64 = 100;

/// Not counted: waits, because how many events one finds is the machine's business as well, and
/// what std in a debug build does before it closes a descriptor.
const LEFT_OUT: &[&str] = if cfg!(debug_assertions) {
    &["epoll_wait", "epoll_pwait", "fcntl"]
} else {
    &["epoll_wait", "epoll_pwait"]
};

/// The client's request, the backend's answer and its end.
#[test]
fn of_a_short_connection() {
    let backend = Backend::serving(|mut stream| {
        stream.receive(BYTES);
        stream.send(BYTES);
    });
    let connect = |edge: &str, times: usize| {
        for _ in 0..times {
            let mut client = Stream::connect(edge);
            client.send(BYTES);
            client.receive(BYTES);
            client.expect_end();
        }
    };
    expect_at_most(17.0, &to_backend(&backend), 50, connect);
}

#[test]
fn of_a_request_on_a_kept_connection() {
    let backend = Backend::echo();
    let request = |edge: &str, times: usize| {
        let mut client = Stream::connect(edge);
        for _ in 0..times {
            client.send(BYTES);
            client.receive(BYTES);
        }
    };
    expect_at_most(4.1, &to_backend(&backend), 100, request);
}

/// Questions and answers of different flows are received and sent together.
#[test]
fn of_a_datagram_and_its_answer() {
    let backend = UdpBackend::mirror();
    let ask = |edge: &str, times: usize| {
        let client = UdpClient::to(edge);
        for _ in 0..times {
            client.send([7; BYTES as usize]);
            assert_eq!(client.receive(), [7; BYTES as usize]);
        }
    };
    // A flow would go on until it is idle.
    let yaml = one_udp_listener("", &[&backend], "");
    expect_at_most(3.0, &format!("shutdown: {{ grace: 0s }}\n{yaml}"), 100, ask);
}

fn to_backend(backend: &Backend) -> String {
    one_listener("", &[&backend.address()], "")
}

/// Every client does something once, then in another process `times` more: the difference is what
/// that costs, without start and end of process and client.
fn expect_at_most(bound: f64, yaml: &str, times: usize, client: fn(&str, usize)) {
    let once = calls(yaml, |edge| client(edge, 1));
    let more = calls(yaml, |edge| client(edge, 1 + times));
    let each = |(name, count): (&String, &u64)| {
        let before = once.get(name).copied().unwrap_or_default();
        let each = (*count as f64 - before as f64) / (CLIENTS * times) as f64;
        (!LEFT_OUT.contains(&name.as_str())).then(|| (name.clone(), each))
    };
    let mut each: BTreeMap<String, f64> = more.iter().filter_map(each).collect();
    let total: f64 = each.values().sum();
    each.retain(|_, calls| calls.abs() >= 0.005);
    eprintln!("{total:.2} system calls: {each:.2?}");
    assert!(total <= bound, "{total:.2} system calls, at most {bound} expected: {each:.2?}");
    assert!(total > bound / 2.0, "too few to be true");
}

/// The calls by name of a process whose clients, all at once, do this.
fn calls(yaml: &str, client: impl Fn(&str) + Sync) -> BTreeMap<String, u64> {
    let directory = fresh_directory();
    let summary = directory.join("summary");
    let mut strace = Command::new("strace");
    // As a grandchild, strace leaves the process to be the test's child.
    strace.args(["-D", "-f", "-c", "-o"]).arg(&summary).arg(env!("CARGO_BIN_EXE_pointsman"));
    let mut pointsman =
        Pointsman::spawn_by(strace, &format!("workers: 1\naccess_log: off\n{yaml}"));
    pointsman.wait_ready();
    let edge = pointsman.address("edge");
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| client(&edge));
        }
    });
    // It does not look at metrics meanwhile: a scrape has calls of its own.
    pointsman.stop();
    let text = wait_for("strace's summary", || {
        let text = fs::read_to_string(&summary).unwrap_or_default();
        text.contains(" total").then_some(text)
    });
    fs::remove_dir_all(directory).unwrap();
    // % time, seconds, usecs/call, calls, errors if any, syscall
    let row = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        let count = words.get(3)?.parse().ok()?;
        let name = *words.last()?;
        (name != "total").then(|| (name.to_owned(), count))
    };
    text.lines().filter_map(row).collect()
}
