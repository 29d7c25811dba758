use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::balance::PolicyKind;
use crate::health::State;
use crate::observe::fixture::Fixture;
use crate::state::{ConnectFailure, Direction, Termination};

type Labels = BTreeMap<String, String>;

/// A strict reading of the text format: panics on what Prometheus would refuse.
#[derive(Debug, Default)]
struct Parsed {
    kinds: BTreeMap<String, String>,
    series: BTreeMap<(String, Labels), f64>,
}

impl Parsed {
    fn read(text: &str) -> Parsed {
        let mut parsed = Parsed::default();
        let mut helped = BTreeSet::new();
        let mut current = String::new();
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').expect(line);
                assert!(!help.is_empty() && helped.insert(name.to_owned()), "{line}");
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect(line);
                assert!(helped.contains(name), "no HELP before: {line}");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                assert!(parsed.kinds.insert(name.to_owned(), kind.to_owned()).is_none(), "{line}");
                current = name.to_owned();
            } else {
                assert!(!line.starts_with('#'), "{line}");
                parsed.sample(line, &current);
            }
        }
        assert_eq!(helped, parsed.kinds.keys().cloned().collect());
        parsed
    }

    fn sample(&mut self, line: &str, family: &str) {
        let end = line.find(['{', ' ']).expect(line);
        let (name, rest) = line.split_at(end);
        let suffix = name.strip_prefix(family).unwrap_or_else(|| panic!("not {family}: {line}"));
        let histogram = self.kinds[family] == "histogram";
        let expected: &[&str] = if histogram { &["_bucket", "_sum", "_count"] } else { &[""] };
        assert!(expected.contains(&suffix), "{line}");
        assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{line}");
        let (labels, rest) = labels(rest);
        let value = rest.strip_prefix(' ').expect(line).parse().expect(line);
        let key = (name.to_owned(), labels);
        assert!(self.series.insert(key, value).is_none(), "duplicate: {line}");
    }

    fn get(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let labels = labels.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        self.series.get(&(format!("pointsman_{name}"), labels)).copied()
    }
}

/// Reads `{name="value",…}`, if there is one, and returns what follows it.
fn labels(text: &str) -> (Labels, &str) {
    let mut labels = Labels::new();
    let Some(mut rest) = text.strip_prefix('{') else { return (labels, text) };
    loop {
        let (name, value) = rest.split_once("=\"").expect(text);
        assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{text}");
        let mut out = String::new();
        let mut chars = value.chars();
        loop {
            match chars.next().expect(text) {
                '"' => break,
                '\\' => out.push(match chars.next() {
                    Some('n') => '\n',
                    Some(c @ ('"' | '\\')) => c,
                    other => panic!("escape {other:?} in {text}"),
                }),
                c => out.push(c),
            }
        }
        assert!(labels.insert(name.to_owned(), out).is_none(), "{text}");
        match chars.next() {
            Some(',') => rest = chars.as_str(),
            Some('}') => return (labels, chars.as_str()),
            other => panic!("{other:?} after a label in {text}"),
        }
    }
}

const ODD: &str = "a\"b\\c\\\\\"\\n d=é🚀{},\n\\";

#[test]
fn text_is_strict_and_odd_names_arrive() {
    let fixture = Fixture::new(ODD, &[ODD, "plain"]);
    let listener = &fixture.snapshot.listeners[0].listener.state;
    listener.opened(0);
    listener.opened(1);
    listener.opened(1);
    listener.closed(1, Termination::IdleTimeout, Duration::from_millis(3));
    listener.passed(0, Direction::In, 7);
    listener.accept_paused(0);
    let pool = &fixture.snapshot.pools[0];
    pool.state.retried(1);
    pool.state.set_panic(true);
    pool.state.connect_seconds.record(0, Duration::from_secs(100_000));
    let backend = &pool.backends[0].state;
    backend.set_state(State::Down);
    backend.connected(0);
    backend.connect_failed(1, ConnectFailure::LocalPorts);
    backend.passed(0, Direction::Out, 9);
    let _lease = backend.lease().unwrap();

    let parsed = Parsed::read(&fixture.render());
    let (l, p, b) = (("listener", ODD), ("pool", ODD), ("backend", ODD));
    for (name, labels, expected) in [
        ("connections_total", vec![l], 3.0),
        ("connections_active", vec![l], 2.0),
        ("connections_closed_total", vec![l, ("termination", "idle_timeout")], 1.0),
        ("connections_closed_total", vec![l, ("termination", "client_closed")], 0.0),
        ("bytes_total", vec![l, ("direction", "in")], 7.0),
        ("bytes_total", vec![l, ("direction", "out")], 0.0),
        ("accept_pauses_total", vec![l], 1.0),
        ("session_seconds_count", vec![l], 1.0),
        ("session_seconds_bucket", vec![l, ("le", "0.0025")], 0.0),
        ("session_seconds_bucket", vec![l, ("le", "0.005")], 1.0),
        ("pool_retries_total", vec![p], 1.0),
        ("pool_no_backend_total", vec![p], 0.0),
        ("pool_panic", vec![p], 1.0),
        ("pool_connect_seconds_sum", vec![p], 100_000.0),
        ("pool_first_byte_seconds_count", vec![p], 0.0),
        ("backend_state", vec![p, b, ("state", "down")], 1.0),
        ("backend_state", vec![p, b, ("state", "up")], 0.0),
        ("backend_weight", vec![p, b], 1.0),
        ("backend_connections_total", vec![p, b], 1.0),
        ("backend_connections_active", vec![p, b], 1.0),
        ("backend_connect_failures_total", vec![p, b, ("reason", "local_ports")], 1.0),
        ("backend_bytes_total", vec![p, b, ("direction", "out")], 9.0),
        ("backend_checks_total", vec![p, b, ("result", "fail")], 0.0),
        ("config_generation", vec![], 0.0),
        ("config_reloads_total", vec![("result", "success")], 0.0),
        ("config_last_reload_success", vec![], 1.0),
        ("access_log_dropped_total", vec![], 0.0),
        ("worker_connections_active", vec![("worker", "1")], 0.0),
        ("worker_busy_ratio", vec![("worker", "0")], 0.0),
        ("build_info", vec![("version", env!("CARGO_PKG_VERSION"))], 1.0),
    ] {
        assert_eq!(parsed.get(name, &labels), Some(expected), "{name} {labels:?}");
    }
    histograms_are_sound(&parsed);
}

fn histograms_are_sound(parsed: &Parsed) {
    let mut buckets: BTreeMap<(String, Labels), Vec<(f64, f64)>> = BTreeMap::new();
    for ((name, labels), &count) in &parsed.series {
        let Some(family) = name.strip_suffix("_bucket") else { continue };
        let mut labels = labels.clone();
        let le = labels.remove("le").unwrap().parse().unwrap();
        buckets.entry((family.to_owned(), labels)).or_default().push((le, count));
    }
    assert_eq!(buckets.len(), 4);
    for ((family, labels), mut buckets) in buckets {
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(buckets.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{family}");
        let (le, count) = *buckets.last().unwrap();
        assert_eq!(le, f64::INFINITY);
        assert_eq!(parsed.series[&(format!("{family}_count"), labels)], count, "{family}");
    }
}

#[test]
fn digests_of_hash_policies_arrive_whole() {
    let digest = |policy, backends: &[&str]| {
        let fixture = Fixture::balanced_by(policy, "p", backends);
        let status = crate::observe::status::status(&fixture.process, &fixture.snapshot);
        let hex = status.pools.0[0].1.digest.clone();
        let gauge = Parsed::read(&fixture.render()).get("pool_table_digest", &[("pool", "p")]);
        let whole = gauge.map(|gauge| format!("{:012x}", gauge as u64));
        assert_eq!(whole, hex);
        hex
    };
    for policy in PolicyKind::ALL {
        let [first, permuted, other] =
            [["a", "b"], ["b", "a"], ["a", "c"]].map(|backends| digest(policy, &backends));
        assert_eq!(first.is_some(), policy.hashes(), "{policy}");
        assert_eq!(first, permuted, "{policy}");
        assert_eq!(first == other, first.is_none(), "{policy}");
    }
}

#[test]
fn process_series_are_those_of_this_process() {
    let parsed = Parsed::read(&Fixture::new("l", &["b"]).render());
    let get = |name: &str| parsed.series[&(name.to_owned(), Labels::new())];
    assert_eq!(parsed.kinds["process_cpu_seconds_total"], "counter");
    assert!(get("process_cpu_seconds_total") < 3600.0);
    assert!(get("process_open_fds") >= 3.0 && get("process_open_fds") < get("process_max_fds"));
    assert!(get("process_resident_memory_bytes") > 1e6);
    assert!(get("process_virtual_memory_bytes") >= get("process_resident_memory_bytes"));
    assert!(get("process_threads") >= 1.0);
    let now = jiff::Timestamp::now().as_second() as f64;
    let age = now - get("process_start_time_seconds");
    assert!((-5.0..3600.0).contains(&age), "{age}");
}

#[test]
fn removed_backend_keeps_series_while_it_has_sessions() {
    let mut fixture = Fixture::new("l", &["b1", "b2"]);
    let lease = fixture.snapshot.pools[0].backends[0].state.lease().unwrap();
    let name = lease.backend().name();
    let address = lease.backend().address.clone();
    fixture.replace("l", &["b2"]);
    // The name goes to another address while the removed one still has a session.
    fixture.snapshot.pools[0].backends[0].state.set_name(name.clone());
    let parsed = Parsed::read(&fixture.render());
    let labels =
        |backend: &str| [("pool", "l"), ("backend", backend)].map(|(k, v)| (k, v.to_owned()));
    let active = |backend: &str| {
        let labels = labels(backend);
        let labels: Vec<_> = labels.iter().map(|(k, v)| (*k, v.as_str())).collect();
        (parsed.get("backend_connections_active", &labels), parsed.get("backend_weight", &labels))
    };
    assert_eq!(active(&name), (Some(0.0), Some(1.0)));
    assert_eq!(active(&format!("{name}@{address}")), (Some(1.0), None));
    drop(lease);
    let parsed = Parsed::read(&fixture.render());
    assert!(
        parsed
            .series
            .keys()
            .all(|(_, labels)| { labels.get("backend").is_none_or(|backend| **backend == *name) })
    );
}

#[test]
fn totals_agree_at_every_scrape() {
    let fixture = Fixture::new("l", &["b"]);
    let state = fixture.snapshot.listeners[0].listener.state.clone();
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stopped = stop.clone();
    let worker = std::thread::spawn(move || {
        while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
            state.opened(0);
            state.closed(0, Termination::ClientClosed, Duration::ZERO);
        }
    });
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut last = 0.0;
    let mut moved = 0;
    while moved < 20 {
        assert!(Instant::now() < deadline, "the counters do not move");
        let parsed = Parsed::read(&fixture.render());
        let total = parsed.get("connections_total", &[("listener", "l")]).unwrap();
        let active = parsed.get("connections_active", &[("listener", "l")]).unwrap();
        let closed: f64 = Termination::ALL
            .iter()
            .filter_map(|t| {
                let labels = [("listener", "l"), ("termination", t.name())];
                parsed.get("connections_closed_total", &labels)
            })
            .sum();
        assert_eq!(total, closed + active);
        moved += u32::from(total > last);
        last = total;
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    worker.join().unwrap();
}

#[test]
fn number_of_series_depends_on_the_configuration_alone() {
    let fixture = Fixture::new("l", &["b"]);
    let before = Parsed::read(&fixture.render()).series.len();
    let state = &fixture.snapshot.listeners[0].listener.state;
    for n in 0..100_000 {
        state.opened(0);
        state.closed(0, Termination::ALL[n % Termination::ALL.len()], Duration::from_micros(1));
    }
    assert_eq!(Parsed::read(&fixture.render()).series.len(), before);
}

/// The bound is generous because this is neither optimised nor alone on the machine; it fails
/// when a scrape becomes quadratic.
#[test]
fn five_thousand_backends_in_bounded_time() {
    let names: Vec<String> = (0..5000).map(|n| format!("backend-{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let fixture = Fixture::new("l", &names);
    let started = Instant::now();
    let text = fixture.render();
    let took = started.elapsed();
    assert!(took < Duration::from_secs(10), "{} bytes took {took:?}", text.len());
}
