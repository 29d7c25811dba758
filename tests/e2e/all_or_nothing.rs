//! A reload that cannot be done whole is not done at all, and nobody ever notices it.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use crate::harness::{Backend, HeldPort, Pointsman, Stream, one_listener};

/// `edge`, and more listeners of the same pool. By `max_connections: auto` a reload would raise the
/// limit of descriptors that a test has set.
fn with(backend: &Backend, more: &[(&str, &str)]) -> String {
    let mut yaml = one_listener("", &[&backend.address()], "");
    for (name, address) in more {
        let listener = format!("{name}: {{ bind: \"{address}\", pool: pool }}, edge: ");
        yaml = yaml.replacen("edge: ", &listener, 1);
    }
    format!("workers: 4\nmax_connections: off\n{yaml}")
}

fn round_trip(address: &str) {
    let mut stream = Stream::connect(address);
    stream.send(100);
    stream.receive(100);
    stream.finish();
    stream.expect_end();
}

/// Lets it open only so many descriptors more.
fn leave_descriptors(pointsman: &Pointsman, left: u64) {
    let descriptors = fs::read_dir(format!("/proc/{}/fd", pointsman.id())).unwrap().flatten();
    let used: BTreeSet<u64> =
        descriptors.map(|fd| fd.file_name().to_str().unwrap().parse().unwrap()).collect();
    let unused = (0..).filter(|fd| !used.contains(fd));
    pointsman.limit_descriptors(unused.take(left as usize).last().unwrap() + 1);
}

/// Adds a listener with so many descriptors left; whether that was done.
fn adds_a_listener(left: u64, backend: &Backend, port: &HeldPort) -> bool {
    const ENOUGH: u64 = 5000;
    let address = port.address().to_string();
    let pointsman = Pointsman::start(&with(backend, &[]));
    let more = with(backend, &[("more", &address)]);
    pointsman.usage_at_rest();
    pointsman.configure(&more);
    leave_descriptors(&pointsman, left);
    let (status, body) = pointsman.admin("POST", "/api/v1/reload");
    pointsman.limit_descriptors(ENOUGH);
    if status == 200 {
        (0..20).for_each(|_| round_trip(&address));
    } else {
        assert_eq!(status, 422, "{body}");
        let error = Stream::try_connect(&address).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "with {left} left");
    }
    // What is short at one time is no obstacle later.
    pointsman.reload(&more).unwrap();
    (0..20).for_each(|_| round_trip(&address));
    pointsman.wait_idle();
    let log = pointsman.log();
    assert!(!log.contains("cannot accept on"), "{log}");
    pointsman.stop();
    status == 200
}

/// Either the new listener is not there, or every worker serves it.
#[test]
fn a_listener_is_served_by_all_workers_or_by_none() {
    let (backend, port) = (Backend::echo(), HeldPort::new("127.0.0.1"));
    let done: Vec<_> = (2..12).map(|left| adds_a_listener(left, &backend, &port)).collect();
    assert!(done.contains(&true) && done.contains(&false), "the limits are no test: {done:?}");
}

#[test]
fn a_refused_reload_opens_no_door() {
    const RELOADS: usize = 50;
    let backend = Backend::echo();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken_address = taken.local_addr().unwrap().to_string();
    let port = HeldPort::new("127.0.0.1");
    let free = port.address().to_string();
    // Whichever is bound first.
    let orders = [["a", "z"], ["z", "a"]];
    let yamls = orders.map(|[f, t]| with(&backend, &[(f, &free), (t, &taken_address)]));
    let pointsman = Pointsman::start(&with(&backend, &[]));
    let (over, refused) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let client = || {
            while !over.load(Relaxed) {
                let error = Stream::try_connect(&free).expect_err("there is no such listener");
                assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
                refused.fetch_add(1, Relaxed);
            }
        };
        let clients = [(); 2].map(|()| scope.spawn(client));
        for reload in 0..RELOADS {
            pointsman.configure(&yamls[reload % 2]);
            let (status, body) = pointsman.admin("POST", "/api/v1/reload");
            let expected = format!("cannot listen on {taken_address}");
            if status != 422 || !body.contains(&expected) {
                over.store(true, Relaxed);
            }
            assert_eq!(status, 422, "{body}");
            assert!(body.contains(&expected), "{body}");
        }
        over.store(true, Relaxed);
        for client in clients {
            client.join().expect("always refused");
        }
    });
    assert!(refused.load(Relaxed) > RELOADS, "{refused:?} connections are no test");
    assert_eq!(pointsman.status()["listeners"].as_object().unwrap().len(), 1);
    // With the other address free, both open.
    drop(taken);
    pointsman.reload(&yamls[0]).unwrap();
    round_trip(&free);
    round_trip(&taken_address);
    pointsman.stop();
}
