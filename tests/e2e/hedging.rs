//! A second attempt beside one that takes long: `connect.hedge_after`.

use crate::harness::{Backend, Metrics, Pointsman, Record, one_listener, wait_until};

fn of_pool(metrics: &Metrics, name: &str) -> f64 {
    metrics.value(&format!("pointsman_pool_{name}_total"), &[("pool", "pool")])
}

fn active(metrics: &Metrics, backend: &Backend) -> f64 {
    let address = backend.address();
    let labels = [("pool", "pool"), ("backend", &*address)];
    metrics.value("pointsman_backend_connections_active", &labels)
}

/// Sessions through a pool of these, until so many were hedged; each one's bytes come once.
fn hedge(pointsman: &Pointsman, good: &Backend, hedges: f64) {
    let mut sessions = 0;
    wait_until("hedges", || {
        let mut client = pointsman.connect("edge");
        client.send(5000);
        client.finish();
        let mut server = good.accept();
        assert_eq!(server.receive_all().unwrap(), 5000);
        server.send(5000);
        drop(server);
        assert_eq!(client.receive_all().unwrap(), 5000);
        sessions += 1;
        pointsman.access_log(sessions);
        of_pool(&pointsman.metrics(), "hedges") >= hedges
    });
}

fn overtaken(record: &Record) -> bool {
    record.attempts().iter().any(|(_, outcome)| outcome == "overtaken")
}

/// The first to be established wins. The other is given up, but not forgotten: it is late, which
/// ejects, and it is load until its time is over.
#[test]
fn who_is_late_is_overtaken() {
    let (hole, good) = (Backend::black_hole(), Backend::manual());
    let settings = "balance: round_robin, connect: { hedge_after: 50ms, timeout: 1500ms }";
    let backends = [hole.address(), good.address()];
    let pointsman =
        Pointsman::start(&one_listener("", &backends.each_ref().map(String::as_str), settings));
    hedge(&pointsman, &good, 3.0);
    wait_until("it to be ejected", || pointsman.state(&hole.address()) == "ejected");
    assert!(!good.has_waiting(), "more connections than sessions");
    let log = pointsman.log();
    assert!(log.contains("failures=late in_a_row=1"), "{log}");
    assert!(active(&pointsman.metrics(), &hole) >= 1.0, "it is load still");
    let metrics = pointsman.wait_idle();
    assert_eq!((of_pool(&metrics, "hedges"), of_pool(&metrics, "retries")), (3.0, 0.0));
    let records = pointsman.stop();
    let late: Vec<_> = records.iter().filter(|record| overtaken(record)).collect();
    assert_eq!(late.len(), 3);
    for record in late {
        let expected =
            [(hole.address(), "overtaken".to_owned()), (good.address(), "connected".to_owned())];
        assert_eq!(record.attempts(), expected);
        let ms = record.number("connect_ms");
        assert!((50.0..1000.0).contains(&ms), "{record:?}");
        assert_eq!(record.text("termination"), "client_closed");
    }
}

/// Hedges come out of the budget. Without one the slow backend costs its timeout.
#[test]
fn hedges_are_counted_in_the_budget() {
    let (hole, good) = (Backend::black_hole(), Backend::echo());
    let settings = "balance: round_robin, outlier: off, \
                    connect: { hedge_after: 1ms, timeout: 100ms, retry_budget: 0 }";
    let backends = [hole.address(), good.address()];
    let pointsman =
        Pointsman::start(&one_listener("", &backends.each_ref().map(String::as_str), settings));
    // The budget is full at the start: 100, and 10 more each second.
    wait_until("the budget to be exhausted", || {
        let mut clients: Vec<_> = (0..40).map(|_| pointsman.connect("edge")).collect();
        for client in &mut clients {
            client.send(1);
            client.finish();
            // Served or not.
            let _end = client.receive_all();
        }
        of_pool(&pointsman.metrics(), "budget_exhausted") > 0.0
    });
    let metrics = pointsman.wait_idle();
    let spent = of_pool(&metrics, "hedges") + of_pool(&metrics, "retries");
    assert!((100.0..200.0).contains(&spent), "{spent}");
    pointsman.stop();
}

/// `auto` learns how long connects take; before that it waits for 100 ms, then for 5 ms at least.
#[test]
fn auto_learns() {
    let (hole, good) = (Backend::black_hole(), Backend::manual());
    let settings = "balance: round_robin, outlier: off, connect: { hedge_after: auto }";
    let backends = [hole.address(), good.address()];
    let pointsman =
        Pointsman::start(&one_listener("", &backends.each_ref().map(String::as_str), settings));
    hedge(&pointsman, &good, 20.0);
    let records = pointsman.access_log(0);
    let late: Vec<_> = records.iter().filter(|record| overtaken(record)).collect();
    let ms = |record: &Record| record.number("connect_ms");
    assert!(ms(late[0]) >= 100.0, "{:?}", late[0]);
    // After 16 connects; half of the sessions were hedged.
    let learned = late.iter().skip(10).map(|record| ms(record));
    let least = learned.fold(f64::MAX, f64::min);
    assert!((5.0..100.0).contains(&least), "{least}");
    pointsman.wait_idle();
    pointsman.stop();
}
