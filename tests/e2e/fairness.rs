//! Long sessions are spread over the workers, whichever accepted them.

use crate::harness::{Backend, Pointsman, one_listener, wait_until};

/// Sessions of each worker.
fn of_workers(pointsman: &Pointsman, workers: usize) -> Vec<f64> {
    let metrics = pointsman.metrics();
    let of = |index: usize| {
        let labels = [("worker", &*index.to_string())].map(|(k, v)| (k, v.to_owned()));
        metrics.value("pointsman_worker_connections_active", &[(labels[0].0, &labels[0].1)])
    };
    (0..workers).map(of).collect()
}

/// 200 long sessions: the largest share is at most 1.15 times the smallest on two workers, and on
/// more no worker is left with little.
#[test]
fn long_sessions_are_spread() {
    for (workers, most) in [(2, 1.15), (4, 1.3)] {
        let backend = Backend::echo();
        let yaml = one_listener("", &[&backend.address()], "");
        let pointsman = Pointsman::start(&format!("workers: {workers}\n{yaml}"));
        for round in 0..3 {
            let mut clients: Vec<_> = (0..200).map(|_| pointsman.connect("edge")).collect();
            for client in &mut clients {
                client.exchange(1, 1);
            }
            let shares = of_workers(&pointsman, workers);
            assert_eq!(shares.iter().sum::<f64>(), 200.0);
            let (least, largest) =
                shares.iter().fold((f64::MAX, 0.0), |(a, b), &n| (n.min(a), n.max(b)));
            assert!(largest <= most * least, "{workers} workers, round {round}: {shares:?}");
            drop(clients);
            pointsman.wait_idle();
        }
    }
}

/// What was handed over when the process is told to stop is served like any other.
#[test]
fn nothing_is_lost_between_workers() {
    let backend = Backend::echo();
    let yaml = one_listener("", &[&backend.address()], "");
    let yaml = format!("workers: 4\nshutdown: {{ grace: 20s }}\n{yaml}");
    let mut pointsman = Pointsman::start(&yaml);
    let mut clients: Vec<_> = (0..300).map(|_| pointsman.connect("edge")).collect();
    pointsman.signal(rustix::process::Signal::TERM);
    for client in &mut clients {
        client.exchange(1, 1);
    }
    wait_until("all to be open", || backend.open() == 300);
    drop(clients);
    assert_eq!(pointsman.wait().code(), Some(0));
    let records = pointsman.access_log(300);
    assert_eq!(records.len(), 300);
    assert!(records.iter().all(|record| record.text("termination") == "client_closed"));
}
