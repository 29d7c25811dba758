//! Reloads and the end of the process: flows go on, and no datagram is lost or answered twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::harness::{
    HeldPort, Pointsman, UdpBackend, UdpClient, one_listener, one_udp_listener, pass, wait_until,
};

/// Clients that ask and wait for the answer, each with a flow that it keeps, and as many that ask
/// from a new port each time.
struct Load {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<usize>>,
}

impl Load {
    fn start(edge: &str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let client = |number: usize| {
            let (stop, edge) = (stop.clone(), edge.to_owned());
            std::thread::spawn(move || {
                let mut client = UdpClient::to(&edge);
                let mut own = client.backend("first");
                let mut asked = 0;
                while !stop.load(Relaxed) {
                    if number % 2 == 1 {
                        // Nothing more comes for the one before.
                        assert_eq!(client.try_receive(Duration::from_millis(1)), None);
                        client = UdpClient::to(&edge);
                        own = client.backend("first");
                    }
                    asked += 1;
                    // The answer to each is the next to come: none is lost, none comes twice.
                    assert_eq!(client.backend(&format!("{number}-{asked}")), own);
                }
                assert_eq!(client.try_receive(Duration::from_millis(20)), None);
                asked
            })
        };
        Load { clients: (0..4).map(client).collect(), stop }
    }

    fn stop(self) -> usize {
        self.stop.store(true, Relaxed);
        self.clients.into_iter().map(|client| client.join().expect("all were served")).sum()
    }
}

#[test]
fn a_reload_loses_nothing_and_moves_no_flow() {
    let all = ["a", "b", "c"].map(UdpBackend::echo);
    let config = |count: usize, more: &str| {
        let backends: Vec<_> = all.iter().take(count).collect();
        let yaml = one_udp_listener(more, &backends, "balance: round_robin");
        format!("workers: 2\n{yaml}")
    };
    let pointsman = Pointsman::start(&config(2, ""));
    let load = Load::start(&pointsman.address("edge"));
    for round in 0..30 {
        let more = ["", "timeouts: { idle: 40s }", "limits: { flows: 5000 }"][round % 3];
        pointsman.reload(&config(2 + round % 2, more)).unwrap();
        pass(Duration::from_millis(20));
    }
    assert!(load.stop() > 200);
    assert_eq!(pointsman.metrics().sum("pointsman_udp_dropped_total", ("listener", "edge")), 0.0);
}

/// A backend that is no longer in the configuration keeps what it has.
#[test]
fn flows_of_a_removed_backend_go_on() {
    let all = ["a", "b"].map(UdpBackend::echo);
    let [a, b] = all.each_ref();
    let pool = "balance: round_robin";
    let pointsman = Pointsman::start(&one_udp_listener("", &[a, b], pool));
    let edge = pointsman.address("edge");
    let clients: Vec<_> = (0..4).map(|_| UdpClient::to(&edge)).collect();
    let names = |clients: &[UdpClient]| -> Vec<String> {
        clients.iter().map(|client| client.backend("x")).collect()
    };
    let before = names(&clients);
    pointsman.reload(&one_udp_listener("", &[b], pool)).unwrap();
    assert_eq!(names(&clients), before);
    assert_eq!(UdpClient::to(&edge).backend("x"), "b");
    // Until it is gone.
    a.close();
    clients.iter().for_each(|client| assert_eq!(client.insist("y"), "b"));
}

#[test]
fn a_listener_goes_and_comes_back() {
    let backend = UdpBackend::echo("a");
    let yaml = one_udp_listener("", &[&backend], "");
    let pointsman = Pointsman::start(&format!("workers: 2\n{yaml}"));
    let before = pointsman.usage_at_rest();
    let edge = pointsman.address("edge");
    let client = UdpClient::to(&edge);
    for round in 1..4 {
        assert_eq!(client.insist("x"), "a");
        let other = "listeners: { other: { bind: \"127.0.0.1:0\", pool: pool } }";
        let without = yaml.lines().nth(1).unwrap();
        pointsman.reload(&format!("workers: 2\n{other}\n{without}")).unwrap();
        client.socket().send(b"x").unwrap();
        let error = client.socket().recv(&mut [0; 10]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
        let record = pointsman.access_log(round).remove(round - 1);
        assert_eq!(record.text("client"), client.local());
        assert_eq!(record.text("termination"), "shutdown");
        let again = yaml.replace("127.0.0.1:0", &edge);
        pointsman.reload(&format!("workers: 2\n{again}")).unwrap();
        assert_eq!(pointsman.usage_at_rest(), before);
    }
    assert_eq!(client.insist("x"), "a");
}

#[test]
fn what_a_reload_says_of_flows_is_obeyed_at_once() {
    let backend = UdpBackend::echo("a");
    let config = |listener: &str| one_udp_listener(listener, &[&backend], "");
    let pointsman = Pointsman::start(&config("timeouts: { idle: 1h }"));
    let edge = pointsman.address("edge");
    let clients: Vec<_> = (0..5).map(|_| UdpClient::to(&edge)).collect();
    clients.iter().for_each(|client| drop(client.backend("x")));
    // Shorter: those that are there end.
    pointsman.reload(&config("timeouts: { idle: 1s }")).unwrap();
    assert_eq!(pointsman.wait_idle().closed("edge", "idle_timeout"), 5.0);
    // Longer: those that are there stay.
    clients[0].backend("x");
    pointsman.reload(&config("timeouts: { idle: 1h }")).unwrap();
    pass(Duration::from_millis(1500)); // the matter of the test
    assert_eq!(pointsman.metrics().active("edge"), 1.0);
    // Another mode.
    pointsman.reload(&config("udp: { responses: 1 }")).unwrap();
    clients[1].backend("x");
    wait_until("the end", || pointsman.metrics().closed("edge", "responses") == 1.0);
    pointsman.reload(&config("limits: { per_source: { rate: 1/s } }")).unwrap();
    (0..50).for_each(|_| clients[2].send("x"));
    let labels = [("listener", "edge"), ("reason", "rate")];
    wait_until("drops", || {
        pointsman.metrics().value("pointsman_udp_dropped_total", &labels) > 40.0
    });
}

/// What stays of a listener's addresses stays open, with its flows.
#[test]
fn addresses_are_added_and_removed_beside_flows() {
    let all = ["a", "b"].map(UdpBackend::echo);
    let yaml = one_udp_listener("", &all.each_ref(), "balance: round_robin");
    let pointsman = Pointsman::start(&yaml);
    let edge = pointsman.address("edge");
    let clients: Vec<_> = (0..4).map(|_| UdpClient::to(&edge)).collect();
    let names = || clients.iter().map(|client| client.backend("x")).collect::<Vec<_>>();
    let before = names();
    for more in [", \"127.0.0.2:0\", \"[::1]:0\"", ", \"127.0.0.3:0\"", ""] {
        let bind = format!("[\"127.0.0.1:0\"{more}]");
        pointsman.reload(&yaml.replace("\"127.0.0.1:0\"", &bind)).unwrap();
        assert_eq!(names(), before);
        let status = pointsman.status();
        for address in status["listeners"]["edge"]["bind"].as_array().unwrap() {
            assert_eq!(UdpClient::to(address.as_str().unwrap()).backend("x").len(), 1);
        }
    }
    assert_eq!(pointsman.metrics().sum("pointsman_udp_dropped_total", ("listener", "edge")), 0.0);
}

/// From UDP to TCP at the same port, and back.
#[test]
fn a_listener_changes_its_protocol() {
    let (datagrams, stream) = (UdpBackend::echo("a"), crate::harness::Backend::echo());
    let port = HeldPort::of_both("127.0.0.1");
    let edge = port.address().to_string();
    let udp = one_udp_listener("", &[&datagrams], "").replace("127.0.0.1:0", &edge);
    let tcp = one_listener("", &[&stream.address()], "").replace("127.0.0.1:0", &edge);
    let pointsman = Pointsman::start(&udp);
    for _ in 0..3 {
        assert_eq!(UdpClient::to(&edge).backend("x"), "a");
        pointsman.reload(&tcp).unwrap();
        assert!(pointsman.echoes());
        pointsman.reload(&udp).unwrap();
    }
    assert_eq!(UdpClient::to(&edge).backend("x"), "a");
}

#[test]
fn while_stopping_flows_go_on_and_none_begins() {
    let backend = UdpBackend::echo("a");
    let yaml = one_udp_listener("", &[&backend], "");
    let yaml = format!("shutdown: {{ grace: 4s }}\nworkers: 2\n{yaml}");
    let mut pointsman = Pointsman::start(&yaml);
    let edge = pointsman.address("edge");
    let clients: Vec<_> = (0..10).map(|_| UdpClient::to(&edge)).collect();
    clients.iter().for_each(|client| drop(client.backend("x")));
    let since = Instant::now();
    pointsman.signal(Signal::TERM);
    wait_until("/readyz to say no", || !pointsman.ready());
    let late = UdpClient::to(&edge);
    wait_until("a refusal", || {
        late.send("y");
        pointsman.metrics().closed("edge", "shutdown") > 0.0
    });
    while since.elapsed() < Duration::from_millis(700) {
        clients.iter().for_each(|client| drop(client.backend("z")));
        pass(Duration::from_millis(20));
    }
    assert_eq!(pointsman.wait().code(), Some(0));
    let took = since.elapsed();
    // The ends are spread over the last of it.
    assert!(took > Duration::from_millis(3100) && took < Duration::from_millis(6500), "{took:?}");
    let records = pointsman.access_log(11);
    let own = |record: &&crate::harness::Record| record.text("client") == late.local();
    let (refused, served): (Vec<_>, Vec<_>) = records.iter().partition(own);
    assert!(!refused.is_empty());
    assert!(refused.iter().any(|record| record.text("backend") == "-"));
    assert_eq!(served.len(), 10);
    assert!(records.iter().all(|record| record.text("termination") == "shutdown"));
}

/// Without a flow there is nothing to wait for.
#[test]
fn an_idle_process_ends_at_once() {
    let backend = UdpBackend::echo("a");
    let yaml = one_udp_listener("udp: { responses: 1 }", &[&backend], "");
    let pointsman = Pointsman::start(&format!("shutdown: {{ grace: 1h }}\n{yaml}"));
    UdpClient::to(&pointsman.address("edge")).backend("x");
    let since = Instant::now();
    pointsman.stop();
    assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
}
