//! An ejected backend comes back by way of a few connections that try it.

use std::time::{Duration, Instant};

use crate::harness::{Backend, Hideable, Pointsman, Stream, one_listener, pass, wait_until};

const MS: Duration = Duration::from_millis(1);

fn of_backend(pointsman: &Pointsman, name: &str, address: &str) -> f64 {
    pointsman.metrics().value(name, &[("pool", "pool"), ("backend", address)])
}

fn ejections(pointsman: &Pointsman, address: &str) -> f64 {
    of_backend(pointsman, "pointsman_backend_ejections_total", address)
}

fn refused(pointsman: &Pointsman, address: &str) -> f64 {
    let labels = [("pool", "pool"), ("backend", address), ("reason", "refused")];
    pointsman.metrics().value("pointsman_backend_connect_failures_total", &labels)
}

/// Two of many may try at a time, whatever the policy. Their failure ejects again, for longer.
#[test]
fn as_many_try_as_are_allowed() {
    const CLIENTS: usize = 20;
    const POLICIES: [&str; 5] = ["least_conn", "round_robin", "p2c", "peak_ewma", "maglev"];
    let (good, hole) = (Backend::echo(), Backend::black_hole());
    let (mut listeners, mut pools) = (String::from("listeners:\n"), String::from("pools:\n"));
    for policy in POLICIES {
        listeners += &format!("  {policy}: {{ bind: \"127.0.0.1:0\", pool: {policy} }}\n");
        pools += &format!(
            "  {policy}: {{ balance: {policy}, backends: [\"{}\", \"{}\"], health: off, connect: \
             {{ timeout: 300ms, retry_budget: off }}, outlier: {{ consecutive_failures: 1, \
             base_ejection: 2s, trial_connections: 2 }} }}\n",
            good.address(),
            hole.address()
        );
    }
    let pointsman = Pointsman::start(&(listeners + &pools));
    let edges = POLICIES.map(|policy| pointsman.address(policy));
    let batch = || {
        let connect = |edge: &String| (0..CLIENTS).map(|_| Stream::connect(edge)).collect();
        let mut clients: Vec<Vec<Stream>> = edges.iter().map(connect).collect();
        for client in clients.iter_mut().flatten() {
            client.send(1);
            client.receive(1);
        }
    };
    let ejected = |times: usize| {
        wait_until("ejections", || {
            let log = pointsman.log();
            POLICIES.iter().all(|policy| {
                let of_pool = format!("pool={policy} ");
                let line = |line: &&str| line.contains("ejected") && line.contains(&of_pool);
                log.lines().filter(line).count() == times
            })
        });
    };
    batch();
    ejected(1);
    // In the middle of the time that trials are given.
    pass(3000 * MS);
    batch();
    ejected(2);
    let log = pointsman.log();
    assert_eq!(log.matches("in_a_row=1 seconds=2").count(), POLICIES.len(), "{log}");
    assert_eq!(log.matches("in_a_row=2 seconds=4").count(), POLICIES.len(), "{log}");
    pointsman.wait_idle();
    let records = pointsman.stop();
    for policy in POLICIES {
        let of_pool: Vec<_> = records.iter().filter(|r| r.text("pool") == policy).collect();
        assert_eq!(of_pool.len(), 2 * CLIENTS);
        // In the order in which they ended: those who tried are the last.
        let tried = |r: &&&crate::harness::Record| r.attempts()[0].0 == hole.address();
        let mut starts: Vec<_> = of_pool.iter().map(|r| (r.text("time"), tried(&r))).collect();
        starts.sort_unstable();
        let second = &starts[CLIENTS..];
        assert_eq!(second.iter().filter(|(_, tried)| *tried).count(), 2, "{policy}");
    }
}

/// A trial that fails ejects for longer; one that succeeds ends it.
#[test]
fn failure_ejects_again_and_success_lets_back() {
    let (good, bad) = (Backend::echo(), Hideable::hidden());
    let (address, outlier) = (bad.address(), "outlier: { base_ejection: 200ms }");
    let pointsman = Pointsman::start(&one_listener("", &[&good.address(), &address], outlier));
    wait_until("two failed trials", || {
        assert!(pointsman.echoes());
        ejections(&pointsman, &address) == 3.0
    });
    // Three to eject it, then one each.
    assert_eq!(refused(&pointsman, &address), 5.0);
    assert_eq!(pointsman.state(&address), "ejected");
    bad.show();
    wait_until("it to be back", || {
        assert!(pointsman.echoes());
        pointsman.state(&address) == "up"
    });
    let taken = bad.backend().accepted();
    assert_eq!(taken, 1, "one success lets it back");
    (0..40).for_each(|_| assert!(pointsman.echoes()));
    assert!(bad.backend().accepted() > 5);
    let log = pointsman.log();
    for (number, seconds) in [(1, "0.2"), (2, "0.4"), (3, "0.6")] {
        let line = format!("failures=connect in_a_row={number} seconds={seconds}");
        assert_eq!(log.matches(&line).count(), 1, "{log}");
    }
    assert_eq!(log.matches("trial connections succeeded").count(), 1, "{log}");
    pointsman.stop();
}

/// Where an answer is what counts, a client that says nothing holds a trial for so long, and
/// does not keep the backend out.
#[test]
fn a_silent_client_keeps_nobody_out() {
    let (good, bad) = (Backend::echo(), Hideable::hidden());
    let (address, outlier) =
        (bad.address(), "outlier: { early_close: true, base_ejection: 500ms }");
    let pointsman = Pointsman::start(&one_listener("", &[&good.address(), &address], outlier));
    wait_until("it to be ejected", || {
        assert!(pointsman.echoes());
        pointsman.state(&address) == "ejected"
    });
    bad.show();
    let mut silent = Vec::new();
    wait_until("a silent client to try it", || {
        silent.push(pointsman.connect("edge"));
        bad.backend().accepted() == 1
    });
    let since = Instant::now();
    wait_until("it to be back", || {
        assert!(pointsman.echoes());
        pointsman.state(&address) == "up"
    });
    let took = since.elapsed();
    assert!((200 * MS..5000 * MS).contains(&took), "{took:?}");
    assert_eq!(ejections(&pointsman, &address), 1.0);
    assert!(silent.iter().all(|client| !client.is_hung_up()));
    drop(silent);
    pointsman.wait_idle();
    pointsman.stop();
}

/// Of two backends that both fail one stays; where all may be ejected states are ignored when they
/// are, and it ends by trials, with no check to help.
#[test]
fn not_more_are_ejected_than_allowed_and_panic_ends() {
    for (percent, most) in [(50, 1), (100, 2)] {
        let backends = [Hideable::hidden(), Hideable::hidden()];
        let addresses = backends.each_ref().map(Hideable::address);
        let outlier = format!(
            "outlier: {{ base_ejection: 400ms, max_ejection: 400ms, max_ejected_percent: {percent} }}"
        );
        let list = addresses.each_ref().map(String::as_str);
        let pointsman = Pointsman::start(&one_listener("", &list, &outlier));
        let ejected =
            || addresses.iter().filter(|address| pointsman.state(address) == "ejected").count();
        wait_until("ejections", || {
            assert!(!pointsman.echoes());
            ejected() == most
        });
        // Two trials each, and more failures than would eject the other.
        wait_until("trials", || {
            assert!(!pointsman.echoes());
            assert!(ejected() <= most);
            addresses.iter().map(|address| ejections(&pointsman, address)).sum::<f64>() > 4.0
        });
        assert_eq!(pointsman.panics(), most == 2);
        backends.iter().for_each(Hideable::show);
        assert!(pointsman.echoes(), "what was not ejected, or everything in panic");
        wait_until("both to be back", || {
            assert!(pointsman.echoes());
            ejected() == 0
        });
        // It ends when their states do not ask for it any more.
        wait_until("the end of panic", || !pointsman.panics());
        pointsman.expect_logged(usize::from(most == 2), "panic is over");
        pointsman.stop();
    }
}
