//! Bounds on the connections of backends and pools, the line before a full one, and backups.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::harness::{Backend, Hideable, Pointsman, Stream, wait_until};

/// A pool `pool` of these backends, maps in flow style, behind the listener `edge`.
fn pool(workers: usize, backends: &[String], keys: &str) -> String {
    format!(
        "workers: {workers}\n\
         listeners: {{ edge: {{ bind: \"127.0.0.1:0\", pool: pool }} }}\n\
         pools: {{ pool: {{ backends: [{}], health: off{keys} }} }}\n",
        backends.join(", ")
    )
}

fn capped(backend: &Backend, max: u32) -> String {
    format!("{{ address: \"{}\", max_connections: {max} }}", backend.address())
}

fn waiting(pointsman: &Pointsman) -> f64 {
    pointsman.metrics().value("pointsman_pool_waiting", &[("pool", "pool")])
}

/// Whether a client gets an answer; if not it is turned away.
fn is_served(stream: &mut Stream) -> bool {
    stream.try_send(1).is_ok() && stream.try_receive(1).is_ok()
}

/// Case 21. 400 clients at once on four workers, for 2 backends with 3 places each.
#[test]
fn caps_hold_exactly_under_many_workers() {
    for policy in ["least_conn", "round_robin", "{ policy: maglev, bounded_load: 1.25 }"] {
        let backends = [Backend::echo(), Backend::echo()];
        let list = backends.each_ref().map(|backend| capped(backend, 3));
        let pointsman = Pointsman::start(&pool(4, &list, &format!(", balance: {policy}")));
        for round in 1..=2 {
            let mut clients: Vec<_> = (0..200).map(|_| pointsman.connect("edge")).collect();
            let served = clients.iter_mut().map(is_served).filter(|served| *served).count();
            assert_eq!(served, 6, "{policy}");
            assert_eq!(backends.each_ref().map(Backend::open), [3, 3], "{policy}");
            drop(clients);
            let metrics = pointsman.wait_idle();
            let refused = metrics.closed("edge", "no_backend");
            assert_eq!(refused, 194.0 * f64::from(round), "{policy}");
            let counted = metrics.value("pointsman_pool_no_backend_total", &[("pool", "pool")]);
            assert_eq!(counted, refused);
            backends.iter().for_each(Backend::wait_idle);
        }
    }
}

/// Whoever waits gets the next place that is free, in the order in which they came.
#[test]
fn a_full_pool_is_waited_for_in_order() {
    let backend = Backend::echo();
    let keys = ", queue: { max: 3, timeout: 20s }";
    let pointsman = Pointsman::start(&pool(4, &[capped(&backend, 1)], keys));
    let mut first = pointsman.connect("edge");
    assert!(is_served(&mut first));
    let mut line = Vec::new();
    for number in 1..=3 {
        let mut client = pointsman.connect("edge");
        client.send(1);
        line.push(client);
        wait_until("the client to wait", || waiting(&pointsman) == f64::from(number));
    }
    assert!(!is_served(&mut pointsman.connect("edge")), "more than may wait");
    let mut before = first;
    for (number, mut client) in line.into_iter().enumerate() {
        assert_eq!(backend.open(), 1);
        assert_eq!(waiting(&pointsman), 3.0 - number as f64);
        before.finish();
        before.expect_end();
        client.receive(1);
        before = client;
    }
    drop(before);
    let records = pointsman.stop();
    let count = |what: &str| records.iter().filter(|r| r.text("termination") == what).count();
    assert_eq!((records.len(), count("no_backend"), count("client_closed")), (5, 1, 4));
}

/// With many clients for few places everybody is served, none twice at once.
#[test]
fn a_crowd_is_served_through_few_places() {
    let most = Arc::new(AtomicUsize::new(0));
    let counting = || {
        let (most, open) = (most.clone(), AtomicUsize::new(0));
        Backend::serving(move |mut stream| {
            most.fetch_max(open.fetch_add(1, SeqCst) + 1, SeqCst);
            while stream.try_receive(1).is_ok() {
                stream.send(1);
            }
            // Before the FIN that frees the place.
            open.fetch_sub(1, SeqCst);
        })
    };
    let backends = [counting(), counting()];
    let list = backends.each_ref().map(|backend| capped(backend, 2));
    let keys = ", queue: { max: 1000, timeout: 20s }";
    let pointsman = Pointsman::start(&pool(4, &list, keys));
    let address = pointsman.address("edge");
    std::thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let mut client = Stream::connect(&address);
                    assert!(is_served(&mut client));
                    client.finish();
                    client.expect_end();
                }
            });
        }
    });
    assert_eq!(pointsman.wait_idle().closed("edge", "client_closed"), 640.0);
    assert_eq!((waiting(&pointsman), most.load(SeqCst)), (0.0, 2));
}

/// Waiting ends after `timeout`, and with the process.
#[test]
fn nobody_waits_for_ever() {
    let backend = Backend::echo();
    let timeout = Duration::from_millis(300);
    let config = |timeout: &str| {
        let keys = format!(", queue: {{ max: 10, timeout: {timeout} }}");
        pool(2, &[capped(&backend, 1)], &keys) + "shutdown: { grace: 100ms }\n"
    };
    let pointsman = Pointsman::start(&config("300ms"));
    let mut held = pointsman.connect("edge");
    assert!(is_served(&mut held));
    let (begun, mut client) = (Instant::now(), pointsman.connect("edge"));
    client.expect_end();
    let waited = begun.elapsed();
    assert!((timeout..timeout * 4).contains(&waited), "{waited:?}");
    assert_eq!(pointsman.access_log(1)[0].text("termination"), "no_backend");
    pointsman.reload(&config("1h")).unwrap();
    let mut client = pointsman.connect("edge");
    wait_until("the client to wait", || waiting(&pointsman) == 1.0);
    let records = pointsman.stop();
    client.expect_end();
    let mut ends: Vec<_> = records.iter().map(|record| record.text("termination")).collect();
    ends.sort_unstable();
    assert_eq!(ends, ["no_backend", "shutdown", "shutdown"]);
}

/// A reload that raises the bound lets in who waits; nothing else has to happen.
#[test]
fn a_reload_makes_room() {
    let backend = Backend::echo();
    let config = |max| pool(2, &[capped(&backend, max)], ", queue: { max: 10, timeout: 20s }");
    let pointsman = Pointsman::start(&config(1));
    let mut held = pointsman.connect("edge");
    assert!(is_served(&mut held));
    let mut client = pointsman.connect("edge");
    client.send(1);
    wait_until("the client to wait", || waiting(&pointsman) == 1.0);
    pointsman.reload(&config(2)).unwrap();
    client.receive(1);
    assert_eq!((waiting(&pointsman), backend.open()), (0.0, 2));
}

/// The bound on a whole pool is `overload`, by RST.
#[test]
fn a_full_pool_resets() {
    let backends = [Backend::echo(), Backend::echo()];
    let list = backends.each_ref().map(|b| format!("\"{}\"", b.address()));
    let pointsman = Pointsman::start(&pool(4, &list, ", max_connections: 5"));
    let mut held: Vec<_> = (0..5).map(|_| pointsman.connect("edge")).collect();
    assert!(held.iter_mut().all(is_served));
    for _ in 0..20 {
        Stream::expect_turned_away(&pointsman.address("edge"));
    }
    assert_eq!(pointsman.metrics().closed("edge", "overload"), 20.0);
    held.pop();
    wait_until("a place", || is_served(&mut pointsman.connect("edge")));
}

/// A backup gets what no other can take: when the others refuse, and when they are full.
#[test]
fn backups_take_what_others_cannot() {
    let (proper, spare) = (Backend::echo(), Backend::echo());
    let backup = format!("{{ address: \"{}\", backup: true, name: spare }}", spare.address());
    let list = [capped(&proper, 2), backup.clone()];
    let pointsman = Pointsman::start(&pool(2, &list, ", balance: round_robin"));
    let mut clients: Vec<_> = (0..5).map(|_| pointsman.connect("edge")).collect();
    assert!(clients.iter_mut().all(is_served));
    assert_eq!((proper.open(), spare.open()), (2, 3));
    drop(clients);
    pointsman.access_log(5);
    let refusing = Backend::refusing();
    let list = [format!("\"{}\"", refusing.address()), backup];
    pointsman.reload(&pool(2, &list, "")).unwrap();
    for _ in 0..10 {
        assert!(is_served(&mut pointsman.connect("edge")));
    }
    let records = pointsman.stop();
    // The first after the reload; after three failures the other is ejected.
    let attempts = records[5].attempts();
    let outcomes: Vec<_> = attempts.iter().map(|(_, outcome)| outcome.as_str()).collect();
    assert_eq!(outcomes, ["refused", "connected"], "{attempts:?}");
    assert_eq!(attempts[1].0, "spare");
}

/// A reload, or the operator, gives a waiting client another backend to go to, and takes one away.
#[test]
fn who_waits_sees_what_the_pool_is_by_then() {
    let [first, second] = [Backend::echo(), Backend::echo()];
    let keys = ", queue: { max: 10, timeout: 20s }";
    let one = pool(2, &[capped(&first, 1)], keys);
    let pointsman = Pointsman::start(&one);
    let mut held = pointsman.connect("edge");
    assert!(is_served(&mut held));
    let mut waiter = pointsman.connect("edge");
    waiter.send(1);
    wait_until("the client to wait", || waiting(&pointsman) == 1.0);
    pointsman.reload(&pool(2, &[capped(&first, 1), capped(&second, 1)], keys)).unwrap();
    waiter.receive(1);
    assert_eq!((first.open(), second.open()), (1, 1));

    let mut waiter = pointsman.connect("edge");
    waiter.send(1);
    wait_until("the client to wait", || waiting(&pointsman) == 1.0);
    pointsman.change(&first.address(), r#"{"weight":0}"#);
    // The place that becomes free is not one to be taken any more.
    held.finish();
    held.expect_end();
    first.wait_idle();
    assert_eq!(waiting(&pointsman), 1.0);
    pointsman.change(&first.address(), r#"{"weight":1}"#);
    waiter.receive(1);
}

/// A backend whose ejection is over is tried by who waits.
#[test]
fn who_waits_tries_an_ejected_backend() {
    let (full, ejected) = (Backend::echo(), Hideable::shown());
    let address = ejected.address();
    let keys = ", queue: { max: 10, timeout: 20s }, \
                outlier: { consecutive_failures: 1, base_ejection: 500ms }";
    let list = [capped(&full, 1), format!("\"{address}\"")];
    let pointsman = Pointsman::start(&pool(2, &list, keys));
    ejected.hide();
    let mut held = pointsman.connect("edge");
    wait_until("the ejection", || {
        // Whoever was sent on from there holds the place on the other.
        let _another = pointsman.connect("edge");
        pointsman.state(&address) == "ejected"
    });
    wait_until("the place to be held", || {
        is_served(&mut held) || {
            held = pointsman.connect("edge");
            false
        }
    });
    let mut waiter = pointsman.connect("edge");
    waiter.send(1);
    waiter.finish();
    ejected.show();
    waiter.receive(1);
    waiter.expect_end();
}
