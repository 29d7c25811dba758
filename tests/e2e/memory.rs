//! Memory goes back to the system after a peak.

use std::fs::read_to_string;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::harness::{Pointsman, one_listener, raise_descriptors, wait_until};

const SESSIONS: usize = 5000;

/// KiB that the process has in memory.
fn resident(pointsman: &Pointsman) -> u64 {
    let status = read_to_string(format!("/proc/{}/status", pointsman.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim_end_matches("kB").trim().parse().unwrap()
}

/// So many sessions at a time, which end again.
fn peak(pointsman: &Pointsman, backend: &TcpListener, sessions: usize) -> u64 {
    let edge = pointsman.address("edge");
    let pair = |_| (TcpStream::connect(&edge).unwrap(), backend.accept().unwrap().0);
    let held: Vec<_> = (0..sessions).map(pair).collect();
    let memory = resident(pointsman);
    drop(held);
    wait_until("the sessions to end", || pointsman.metrics().active("edge") == 0.0);
    memory
}

#[test]
fn it_falls_after_a_peak() {
    raise_descriptors();
    let backend = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = backend.local_addr().unwrap().to_string();
    let pointsman = Pointsman::start(&one_listener("", &[&address], ""));
    peak(&pointsman, &backend, 100);
    let before = resident(&pointsman);
    let most = peak(&pointsman, &backend, SESSIONS);
    let bound = before + before / 5;
    assert!(most > bound, "{most} KiB of {SESSIONS} sessions are no peak over {before}");
    let falls = || resident(&pointsman) <= bound;
    let since = Instant::now();
    wait_until("memory within 20 % of what it was", falls);
    assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
}
