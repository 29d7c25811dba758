//! Replacing the configuration under load: what is served meanwhile does not notice.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;

use crate::harness::{Backend, Pointsman, Stream, one_listener, pass};

const MS: Duration = Duration::from_millis(1);
const RELOADS: usize = 100;

/// Clients that connect, have 200 bytes echoed and close: about 300 a second, or as many as go.
struct Load {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<u32>>,
}

impl Load {
    fn start(address: &str) -> Self {
        Load::paced(address, 8 * MS)
    }

    fn paced(address: &str, pause: Duration) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let client = |_| {
            let (stop, address) = (stop.clone(), address.to_owned());
            std::thread::spawn(move || {
                let mut served = 0;
                while !stop.load(Relaxed) {
                    let mut stream = Stream::connect(&address);
                    stream.send(200);
                    stream.receive(200);
                    stream.finish();
                    stream.expect_end();
                    served += 1;
                    pass(pause);
                }
                served
            })
        };
        Load { clients: (0..3).map(client).collect(), stop }
    }

    /// How many connections there were; all of them were served.
    fn stop(self) -> u32 {
        self.stop.store(true, Relaxed);
        self.clients.into_iter().map(|client| client.join().expect("every client served")).sum()
    }
}

/// One connection that has as much echoed as the machine can spare.
struct Bulk {
    stop: Arc<AtomicBool>,
    sender: JoinHandle<u64>,
    receiver: JoinHandle<u64>,
}

impl Bulk {
    fn start(address: &str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut stream = Stream::connect(address);
        let mut answers = stream.other_half();
        let sender = std::thread::spawn({
            let stop = stop.clone();
            move || {
                let mut sent = 0;
                while !stop.load(Relaxed) {
                    stream.send(128 * 1024);
                    sent += 128 * 1024;
                    pass(MS);
                }
                stream.finish();
                sent
            }
        });
        let receiver = std::thread::spawn(move || answers.receive_all().expect("to the end"));
        Bulk { stop, sender, receiver }
    }

    /// Every byte sent has come back.
    fn stop(self) {
        self.stop.store(true, Relaxed);
        let sent = self.sender.join().expect("sent");
        assert_eq!(self.receiver.join().expect("received"), sent);
    }
}

/// A configuration that differs from its neighbours in what can differ. The first backend is in
/// all of them.
fn good(index: usize, backends: &[Backend]) -> String {
    let in_pool = [true, index % 4 != 1, index.is_multiple_of(6)];
    let mut list = Vec::new();
    for (number, backend) in backends.iter().take(3).enumerate().filter(|(n, _)| in_pool[*n]) {
        let (address, weight) = (backend.address(), 1 + (index + number) % 3);
        list.push(format!("{{ address: \"{address}\", weight: {weight} }}"));
    }
    let policy = ["round_robin", "least_conn", "p2c", "maglev", "random"][index % 5];
    let (idle, fresh) = (60 + index % 2, backends[3].address());
    let extra = match index % 4 {
        2 => ", extra: { bind: [\"127.0.0.1:0\", \"unix:DIR/extra\"], pool: pool }",
        3 => ", extra: { bind: \"127.0.0.1:0\", pool: fresh }",
        _ => "",
    };
    format!(
        "listeners: {{ edge: {{ bind: \"127.0.0.1:0\", pool: pool, timeouts: {{ idle: {idle}s }} }}\
         {extra} }}\n\
         pools:\n\
         \x20 pool: {{ balance: {policy}, backends: [{}], health: {{ interval: 500ms }} }}\n\
         \x20 fresh: {{ backends: [\"{fresh}\"], health: {{ interval: 300ms }} }}\n",
        list.join(", ")
    )
}

/// What is wrong in each, and where the answer says it is. Two lines come before these.
fn broken(index: usize, taken: &str) -> (String, String) {
    let pools = "pools: { pool: { backends: [127.0.0.1:1] } }\n";
    let edge = "listeners: { edge: { bind: \"127.0.0.1:0\", pool: pool } }\n";
    let (yaml, expected) = match index % 6 {
        0 => (format!("{edge}{pools}workrs: 3\n"), "yaml:5:1: workrs: unknown key `workrs`"),
        1 => (edge.replace("pool: pool", "pool: pol") + pools, "yaml:3:49: listeners.edge.pool"),
        2 => (format!("{edge}pools: {{ pool: {{ backends: [\n"), "yaml:5:1: "),
        3 => (
            edge.to_owned() + &pools.replace(":1]", ":70000]"),
            "yaml:4:29: pools.pool.backends[0]",
        ),
        4 => (String::new(), "yaml:1:1: `listeners` is missing"),
        _ => (
            edge.replace("127.0.0.1:0\"", "127.0.0.1:0\", v6_only: no") + pools,
            "yaml:3:52: listeners.edge.v6_only",
        ),
    };
    // Every other time the file is sound, but the address is taken.
    if index % 7 == 6 {
        let yaml = edge.replace("127.0.0.1:0", taken) + pools;
        return (yaml, format!("listener edge: cannot listen on {taken}: "));
    }
    (yaml, expected.to_owned())
}

/// What a reload changes, without what time changes.
fn shape(status: &Value) -> Value {
    let mut shape = status.clone();
    shape.as_object_mut().unwrap().remove("uptime_seconds");
    for listener in shape["listeners"].as_object_mut().unwrap().values_mut() {
        let listener = listener.as_object_mut().unwrap();
        listener.retain(|key, _| ["bind", "pool"].contains(&key.as_str()));
    }
    for pool in shape["pools"].as_object_mut().unwrap().values_mut() {
        for backend in pool["backends"].as_object_mut().unwrap().values_mut() {
            let backend = backend.as_object_mut().unwrap();
            backend.retain(|key, _| ["address", "weight"].contains(&key.as_str()));
        }
    }
    shape
}

/// Established connections of each backend of the pool.
fn totals(status: &Value) -> BTreeMap<String, u64> {
    let backends = status["pools"]["pool"]["backends"].as_object().unwrap();
    backends.iter().map(|(name, b)| (name.clone(), b["total"].as_u64().unwrap())).collect()
}

#[test]
fn a_hundred_reloads_under_load() {
    let backends = [Backend::echo(), Backend::echo(), Backend::echo(), Backend::echo()];
    let foreign = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = foreign.local_addr().unwrap().to_string();
    let pointsman = Pointsman::start(&good(0, &backends));
    let edge = pointsman.address("edge");
    let mut long: Vec<_> = (0..8).map(|_| Stream::connect(&edge)).collect();
    let (load, bulk) = (Load::start(&edge), Bulk::start(&edge));
    let mut before = pointsman.status();
    for index in 1..=RELOADS {
        if index % 2 == 0 {
            let generation = pointsman.reload(&good(index / 2, &backends));
            assert_eq!(generation, Ok(1 + index as u64 / 2));
        } else {
            let (yaml, expected) = broken(index / 2, &taken);
            let error = pointsman.reload(&yaml).unwrap_err();
            assert!(error.contains(&expected), "{error}\ninstead of {expected}");
        }
        let now = pointsman.status();
        if index % 2 == 1 {
            assert_eq!(shape(&now), shape(&before));
        }
        assert_eq!(now["listeners"]["edge"]["bind"][0], *edge, "the edge stays where it is");
        let (old, new) = (totals(&before), totals(&now));
        for (name, total) in &new {
            assert!(old.get(name).is_none_or(|old| total >= old), "{name}: {old:?}, {new:?}");
        }
        for stream in &mut long {
            stream.send(100);
            stream.receive(100);
        }
        before = now;
        pass(30 * MS);
    }
    let short = load.stop();
    bulk.stop();
    for mut stream in long {
        stream.finish();
        stream.expect_end();
    }
    assert!(short > 300, "{short} connections are no load");

    let metrics = pointsman.wait_idle();
    let total = metrics.value("pointsman_connections_total", &[("listener", "edge")]);
    assert_eq!(total, f64::from(short + 8 + 1));
    assert_eq!(metrics.closed("edge", "client_closed"), total);
    assert_eq!(metrics.sum("pointsman_backend_connect_failures_total", ("pool", "pool")), 0.0);
    let reloads = |result| metrics.value("pointsman_config_reloads_total", &[("result", result)]);
    assert_eq!((reloads("success"), reloads("failure")), (50.0, 50.0));
    assert_eq!(metrics.value("pointsman_config_last_reload_success", &[]), 1.0);
    pointsman.stop();
}

/// A hundred reloads of an idle process leave nothing behind.
#[test]
fn reloads_cost_nothing_that_lasts() {
    let backends = [Backend::echo(), Backend::echo(), Backend::echo(), Backend::echo()];
    let pointsman = Pointsman::start(&good(0, &backends));
    let rounds = |count: usize| {
        for index in 0..count {
            pointsman.reload(&good(index + 1, &backends)).unwrap();
            if index % 3 == 0 {
                pointsman.reload(&broken(index % 5, "").0).unwrap_err();
            }
        }
        pointsman.reload(&good(0, &backends)).unwrap();
        pointsman.resident()
    };
    // Probes come and go, and so do their descriptors.
    let descriptors = || (0..50).map(|_| (pass(2 * MS), pointsman.usage().descriptors()).1).min();
    let resident = rounds(40);
    let few = descriptors();
    let resident_after = rounds(RELOADS);
    assert_eq!(descriptors(), few);
    let grown = resident_after.saturating_sub(resident);
    assert!(grown < 2 << 20, "{resident} bytes grew to {resident_after}");
    pointsman.stop();
}

/// A reload that replaces every backend of a pool: until the last worker has taken it over, the old
/// ones go on taking what comes.
#[test]
fn all_backends_are_replaced_under_load() {
    let backends = [Backend::echo(), Backend::echo()];
    let config = |index: usize| {
        let yaml = one_listener("", &[&backends[index % 2].address()], "panic_threshold: off");
        format!("workers: 4\n{yaml}")
    };
    let pointsman = Pointsman::start(&config(0));
    let edge = pointsman.address("edge");
    let load = Load::paced(&edge, Duration::ZERO);
    for index in 1..=200 {
        pointsman.reload(&config(index)).unwrap();
    }
    let short = load.stop();
    assert!(short > 300, "{short} connections are no load");
    let metrics = pointsman.wait_idle();
    assert_eq!(metrics.closed("edge", "no_backend"), 0.0);
    assert_eq!(metrics.closed("edge", "client_closed"), f64::from(short));
}
