//! What the operator wants of a backend: drain, maintenance, another weight.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{
    Backend, Hideable, Instance, Load, Pointsman, Stream, one_listener, pass, wait_until,
};

const MS: Duration = Duration::from_millis(1);

/// A pool `pool` of these backends, checked like this, behind the listener `edge`.
fn checked(backends: &[&str], health: &str, pool: &str) -> String {
    let unchecked = one_listener("", backends, pool);
    unchecked.replace("health: off", &format!("health: {{ {health} }}"))
}

fn instances() -> ([Instance; 3], [String; 3]) {
    let instances = [Instance::start(), Instance::start(), Instance::start()];
    let addresses = instances.each_ref().map(Instance::address);
    (instances, addresses)
}

/// Whether a client gets an answer; if not it is turned away.
fn is_served(pointsman: &Pointsman) -> bool {
    let mut stream = pointsman.connect("edge");
    stream.try_send(1).is_ok() && stream.try_receive(1).is_ok()
}

fn state(pointsman: &Pointsman, backend: &str) -> String {
    pointsman.backend(backend)["state"].as_str().unwrap().to_owned()
}

/// No second attempt covers up for a backend that is stopped too early.
#[test]
fn drain_under_load_fails_nothing() {
    let (mut instances, addresses) = instances();
    let list = addresses.each_ref().map(String::as_str);
    let yaml = one_listener("", &list, "balance: least_conn, connect: { attempts: 1 }");
    let pointsman = Pointsman::start(&format!("workers: 4\n{yaml}"));
    let load = Load::start(&pointsman.address("edge"), 6, 6);
    wait_until("slow requests everywhere", || instances.iter().all(|i| i.open() > 0));
    let name = format!("pool/{}", addresses[0]);
    let answer = pointsman.command(&["drain", &name, "--wait", "20s"]);
    // What was under way has been answered; nothing new has come.
    let taken = instances[0].taken();
    instances[0].stop();
    assert_eq!(answer.success(), format!("{name}: drain, up, weight 1, no sessions\n"));
    load.wait_for(300);
    assert_eq!(instances[0].taken(), taken);
    let (answered, failures) = load.stop();
    assert!(failures.is_empty(), "{} of {answered}: {failures:?}", failures.len());
    let log = pointsman.log();
    assert_eq!(log.matches("backend changed by the operator").count(), 1, "{log}");
    pointsman.stop();
}

#[test]
fn rolling_restart_fails_nothing() {
    let (mut instances, addresses) = instances();
    let list = addresses.each_ref().map(String::as_str);
    let health = "interval: 50ms, rise: 1, fall: 1";
    let settings = "balance: round_robin, connect: { attempts: 1 }";
    let pointsman = Pointsman::start(&checked(&list, health, settings));
    let load = Load::start(&pointsman.address("edge"), 6, 6);
    load.wait_for(100);
    for (instance, address) in instances.iter_mut().zip(&addresses) {
        let name = format!("pool/{address}");
        pointsman.command(&["drain", &name, "--wait", "20s"]).success();
        instance.stop();
        wait_until("it to be down", || state(&pointsman, address) == "down");
        load.wait_for(50);
        instance.restart();
        pointsman.command(&["ready", &name]).success();
        wait_until("it to be up", || state(&pointsman, address) == "up");
        let taken = instance.taken();
        wait_until("it to be used", || instance.taken() > taken);
    }
    let (answered, failures) = load.stop();
    assert!(failures.is_empty(), "{} of {answered}: {failures:?}", failures.len());
    assert!(answered > 300, "{answered}");
    let records = pointsman.stop();
    assert!(records.iter().all(|record| record.attempts().len() == 1));
}

/// `--wait` says how it ended.
#[test]
fn drain_waits_for_sessions() {
    let backend = Backend::echo();
    let address = backend.address();
    let pointsman = Pointsman::start(&one_listener("", &[&address], ""));
    let mut held = pointsman.connect("edge");
    held.send(1);
    held.receive(1);
    let name = format!("pool/{address}");
    let answer = pointsman.command(&["drain", &name]).success();
    assert_eq!(answer, format!("{name}: drain, up, weight 1, 1 session\n"));
    let answer = pointsman.command(&["drain", &name, "--wait", "300ms"]);
    let expected = format!("pointsman: {name}: 1 session left after 300ms\n");
    assert_eq!((answer.code, answer.stdout, answer.stderr), (1, String::new(), expected));
    // Drained: nothing new, and what there is goes on.
    assert!(!is_served(&pointsman));
    held.send(1000);
    held.receive(1000);
    pointsman.change(&address, r#"{"admin":"ready"}"#);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| pointsman.command(&["drain", &name, "--wait", "1h"]));
        wait_until("the drain", || pointsman.backend(&address)["admin"] == "drain");
        pointsman.change(&address, r#"{"admin":"ready"}"#);
        let answer = waiting.join().unwrap();
        let expected = format!("pointsman: {name}: somebody has made it ready again\n");
        assert_eq!((answer.code, answer.stderr), (1, expected));
        let waiting = scope.spawn(|| pointsman.command(&["drain", &name, "--wait", "1h"]));
        wait_until("the drain", || pointsman.backend(&address)["admin"] == "drain");
        held.finish();
        held.expect_end();
        assert_eq!(waiting.join().unwrap().code, 0);
    });
    let answer = pointsman.command(&["drain", "pool/nobody"]);
    assert_eq!(answer.code, 1);
    let expected = "pointsman: the admin server said 404 Not Found: the pool has no such backend\n";
    assert_eq!(answer.stderr, expected);
    pointsman.stop();
}

/// With all of them drained there is nothing to offer; panic brings none of them back.
#[test]
fn drained_backends_are_never_picked() {
    let backends = [Hideable::shown(), Hideable::shown()];
    let addresses = backends.each_ref().map(Hideable::address);
    let list = addresses.each_ref().map(String::as_str);
    let pointsman = Pointsman::start(&checked(&list, "interval: 50ms, rise: 1, fall: 1", ""));
    let panics = || pointsman.metrics().value("pointsman_pool_panic", &[("pool", "pool")]);
    let last = || pointsman.access_log(0).pop().expect("a record");
    pointsman.change(&addresses[0], r#"{"admin":"drain"}"#);
    assert_eq!(panics(), 0.0, "what is drained does not count as missing");
    backends[1].hide();
    wait_until("panic", || panics() == 1.0);
    for number in 1..=10 {
        assert!(!is_served(&pointsman));
        pointsman.access_log(number);
        let refused = (addresses[1].clone(), "refused".to_owned());
        assert_eq!(last().attempts(), vec![refused; 3]);
    }
    // It is still checked, and its weight is still its own.
    let drained = pointsman.backend(&addresses[0]);
    assert_eq!((&drained["state"], &drained["admin"]), (&json!("up"), &json!("drain")));
    assert_eq!((&drained["weight"], &drained["active"]), (&json!(1), &json!(0)));
    let metrics = pointsman.metrics();
    for (admin, expected) in [("ready", 0.0), ("drain", 1.0), ("maintenance", 0.0)] {
        let labels = [("pool", "pool"), ("backend", &*addresses[0]), ("admin", admin)];
        assert_eq!(metrics.value("pointsman_backend_admin", &labels), expected, "{admin}");
    }
    pointsman.change(&addresses[1], r#"{"admin":"drain"}"#);
    assert_eq!(panics(), 0.0, "there is nothing that panic could bring back");
    assert!(!is_served(&pointsman));
    pointsman.access_log(11);
    assert_eq!((last().text("termination"), last().attempts().len()), ("no_backend", 0));
    pointsman.change(&addresses[0], r#"{"admin":"ready"}"#);
    let mut client = pointsman.connect("edge");
    client.write(b"hello");
    client.finish();
    assert_eq!(client.read_to_end(), b"hello");
    pointsman.stop();
}

#[test]
fn maintenance_is_not_checked() {
    let (serviced, other) = (Hideable::shown(), Hideable::shown());
    let (address, other) = (serviced.address(), other.address());
    let health = "interval: 20ms, rise: 1, fall: 1";
    let pointsman = Pointsman::start(&checked(&[&address, &other], health, ""));
    let checks = || {
        let labels = |result| [("pool", "pool"), ("backend", &*address), ("result", result)];
        let metrics = pointsman.metrics();
        let count = |result| metrics.value("pointsman_backend_checks_total", &labels(result));
        count("pass") + count("fail")
    };
    pointsman.change(&address, r#"{"admin":"drain"}"#);
    let before = checks();
    wait_until("checks of what is drained", || checks() > before + 3.0);
    let status = pointsman.change(&address, r#"{"admin":"maintenance"}"#);
    // Nobody knows any more.
    assert_eq!((&status["state"], &status["admin"]), (&json!("unknown"), &json!("maintenance")));
    let counted = checks();
    wait_until("the backend to have seen them", || serviced.backend().accepted() as f64 >= counted);
    let accepted = serviced.backend().accepted();
    serviced.hide();
    pass(300 * MS); // the matter of the test: fifteen checks would have been due
    assert_eq!((checks(), state(&pointsman, &address)), (counted, "unknown".to_owned()));
    // Neither a reload looks at it, nor does it wait for that.
    pointsman.reload_file().unwrap();
    pass(100 * MS);
    assert_eq!(checks(), counted);
    assert!(serviced.backend().accepted() <= accepted + 1, "one may have been under way");
    // Back it is checked before it gets anything.
    pointsman.change(&address, r#"{"admin":"ready"}"#);
    wait_until("it to be down", || state(&pointsman, &address) == "down");
    serviced.show();
    wait_until("it to be up", || state(&pointsman, &address) == "up");
    let log = pointsman.log();
    assert!(!log.contains("panic"), "{log}");
    pointsman.stop();
}

/// Identity is pool and address: another name is the same backend.
#[test]
fn what_the_operator_wants_survives_reloads() {
    let backends: Vec<_> = (0..3).map(|_| Backend::echo()).collect();
    let addresses: Vec<_> = backends.iter().map(Backend::address).collect();
    let list: Vec<_> = addresses.iter().map(String::as_str).collect();
    let yaml = one_listener("", &list, "");
    let pointsman = Pointsman::start(&yaml);
    let wants = |backend: &str| {
        let status = pointsman.backend(backend);
        (status["admin"].as_str().unwrap().to_owned(), status["weight"].as_u64().unwrap())
    };
    let is = |admin: &str, weight: u64| (admin.to_owned(), weight);
    pointsman.change(&addresses[0], r#"{"admin":"drain","weight":7}"#);
    pointsman.change(&addresses[1], r#"{"admin":"maintenance"}"#);
    pointsman.reload_file().unwrap();
    let named = yaml.replace(
        &format!("\"{}\"", addresses[0]),
        &format!("{{ address: \"{}\", name: first, weight: 2 }}", addresses[0]),
    );
    pointsman.reload(&named).unwrap();
    assert_eq!((wants("first"), wants(&addresses[0])), (is("drain", 7), is("drain", 7)));
    assert_eq!(wants(&addresses[1]), is("maintenance", 1));
    assert_eq!(wants(&addresses[2]), is("ready", 1));
    for _ in 0..10 {
        assert!(is_served(&pointsman));
    }
    assert!(pointsman.access_log(10).iter().all(|r| r.text("backend") == addresses[2]));
    pointsman.change("first", r#"{"weight":null}"#);
    assert_eq!(wants("first"), is("drain", 2));
    // What is taken out and has no session is forgotten.
    pointsman.reload(&one_listener("", &list[1..], "")).unwrap();
    pointsman.reload(&yaml).unwrap();
    assert_eq!(wants(&addresses[0]), is("ready", 1));
    assert_eq!(wants(&addresses[1]), is("maintenance", 1));
    pointsman.stop();
}

/// How many of 400 clients each backend gets, by its address.
fn shares(pointsman: &Pointsman) -> BTreeMap<String, usize> {
    let (edge, before) = (pointsman.address("edge"), pointsman.all_records().len());
    for number in 0..400 {
        let source = SocketAddr::from((Ipv4Addr::from_bits(0x7f01_0001 + number * 8191), 0));
        let mut stream = Stream::connect_from(source, &edge).unwrap();
        stream.send(1);
        stream.receive(1);
    }
    let mut shares = BTreeMap::new();
    for record in &pointsman.access_log(before + 400)[before..] {
        *shares.entry(record.text("backend").to_owned()).or_default() += 1;
    }
    shares
}

#[test]
fn a_weight_moves_shares_and_digest() {
    let backends = [Backend::echo(), Backend::echo()];
    let [first, second] = backends.each_ref().map(Backend::address);
    let settings = "balance: { policy: maglev, key: source }";
    let pointsman = Pointsman::start(&one_listener("", &[&first, &second], settings));
    let digest = || pointsman.metrics().value("pointsman_pool_table_digest", &[("pool", "pool")]);
    let generation = || pointsman.status()["generation"].as_u64().unwrap();
    let (even, at_first) = (shares(&pointsman), digest());
    assert!(even[&first] > 120 && even[&second] > 120, "{even:?}");

    let answer = pointsman.command(&["weight", &format!("pool/{first}"), "9"]).success();
    assert_eq!(answer, format!("pool/{first}: ready, up, weight 9 (configured 1), no sessions\n"));
    assert_eq!(generation(), 2);
    let (weighted, changed) = (shares(&pointsman), digest());
    assert!(changed != at_first && weighted[&first] > 320, "{weighted:?}");
    // As if the file said so.
    let said = format!("{{ address: \"{first}\", weight: 9 }}, \"{second}\"");
    let yaml = one_listener("", &[&first, &second], settings);
    let weighed = yaml.replace(&format!("\"{first}\", \"{second}\""), &said);
    let other = Pointsman::start(&weighed);
    let same = other.metrics().value("pointsman_pool_table_digest", &[("pool", "pool")]);
    assert_eq!((same, shares(&other)), (changed, weighted));
    other.stop();

    pointsman.reload_file().unwrap();
    assert_eq!((digest(), generation()), (changed, 3));
    // Weight 0 is as good as drained.
    pointsman.change(&first, r#"{"weight":0}"#);
    assert_eq!(shares(&pointsman).get(&first), None);
    pointsman.change(&second, r#"{"weight":0}"#);
    assert!(!is_served(&pointsman));
    for backend in [&first, &second] {
        pointsman.change(backend, r#"{"weight":null}"#);
    }
    assert_eq!((digest(), shares(&pointsman)), (at_first, even));
    let weight = pointsman.command(&["weight", &format!("pool/{first}"), "configured"]).success();
    assert!(weight.contains("weight 1, "), "{weight}");
    assert_eq!(generation(), 7, "what changes nothing is no generation");
    let log = pointsman.log();
    assert_eq!(log.matches("backend changed by the operator").count(), 5, "{log}");
    pointsman.stop();
}

/// A weight that no table can be built for changes nothing.
#[test]
fn a_weight_too_much_is_refused() {
    let listed = |n: u8, weight: u16| format!("{{ address: \"127.2.0.{n}:9\", weight: {weight} }}");
    let mut backends: Vec<String> = (2..=103).map(|n| listed(n, 256)).collect();
    backends.push(listed(1, 100));
    let yaml =
        one_listener("", &["LIST"], "balance: ring").replace("\"LIST\"", &backends.join(", "));
    let pointsman = Pointsman::start(&yaml);
    let path = "/api/v1/pools/pool/backends/127.2.0.1:9";
    let (status, body) = pointsman.admin_with("POST", path, r#"{"weight":200,"admin":"drain"}"#);
    assert!(status == 400 && body.contains("a ring of"), "{status} {body}");
    let backend = pointsman.backend("127.2.0.1:9");
    assert_eq!((&backend["weight"], &backend["admin"]), (&json!(100), &json!("ready")));
    assert_eq!(pointsman.status()["generation"], 1);
    pointsman.stop();
}

#[test]
fn errors_say_what_is_wrong() {
    let directory = crate::harness::fresh_directory();
    let unix = format!("unix:{}/backend.sock", directory.display());
    let yaml = one_listener("", &["[::1]:9", &unix], "");
    let pointsman = Pointsman::start(&yaml);
    let raw_unix = format!("/api/v1/pools/pool/backends/{unix}");
    let encoded_unix = format!("/api/v1/pools/pool/backends/{}", unix.replace('/', "%2F"));
    for (method, path, body, status, expected) in [
        ("POST", "/api/v1/pools/no/backends/[::1]:9", "{\"weight\":1}", 404, "no such pool"),
        ("POST", "/api/v1/pools/pool/backends/b", "{\"weight\":1}", 404, "no such backend"),
        ("GET", "/api/v1/pools/no/backends/[::1]:9", "", 404, "no such pool"),
        ("GET", "/api/v1/pools/pool/backends/b", "", 404, "no such backend"),
        ("POST", "/api/v1/pools/pool/backends/%5B::1%5D:9", "{}", 400, "changes nothing"),
        ("POST", "/api/v1/pools/pool/backends/b", "{\"wait\":1}", 400, "unknown field `wait`"),
        ("POST", "/api/v1/pools/pool/backends/%5B::1%5D:9", "", 400, "a JSON object"),
        ("POST", "/api/v1/pools/pool/backends/%5B::1%5D:9", "{\"weight\":-1}", 400, "weight"),
        ("POST", "/api/v1/pools/pool/backends/%5B::1%5D:9", "{\"weight\":300}", 400, "0 to 256"),
        ("POST", "/api/v1/pools/pool/backends/%5B::1%5D:9", "{\"admin\":\"up\"}", 400, "drain"),
        ("DELETE", "/api/v1/pools/pool/backends/%5B::1%5D:9", "", 405, "does not do that"),
        ("POST", "/api/v1/pools/pool/backends/", "{}", 404, "no such path"),
        ("POST", "/api/v1/pools/pool", "{}", 404, "/api/v1/pools/POOL/backends/BACKEND"),
        ("POST", "/api/v1/pools/pool/backends/%zz", "{}", 404, "no such path"),
        ("GET", "/api/v1/pools/pool/backends/%5B0:0::1%5D:9", "", 200, "\"admin\":\"ready\""),
        ("POST", &raw_unix, "{\"admin\":\"drain\"}", 200, "\"admin\":\"drain\""),
        ("POST", &encoded_unix, "{\"weight\":5}", 200, "\"weight\":5"),
    ] {
        let (got, answer) = pointsman.admin_with(method, path, body);
        assert!(
            got == status && answer.contains(expected),
            "{method} {path} {body}: {got} {answer}"
        );
        let json: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(json["error"].is_string(), status >= 400, "{answer}");
    }
    let answer = pointsman.command(&["maintenance", &format!("pool/{unix}")]).success();
    assert!(answer.contains("maintenance, up, weight 5 (configured 1), no sessions"), "{answer}");
    let table = pointsman.command(&["status"]).success();
    assert!(table.contains("maintenance"), "{table}");
    std::fs::remove_dir_all(directory).unwrap();
    pointsman.stop();
}

/// While the process is stopping, what is said comes too late.
#[test]
fn a_process_that_stops_changes_nothing() {
    let backend = Backend::echo();
    let address = backend.address();
    let pointsman = Pointsman::start(&one_listener("", &[&address], ""));
    let edge = pointsman.address("edge");
    let mut held = pointsman.connect("edge");
    held.send(1);
    held.receive(1);
    pointsman.signal(rustix::process::Signal::TERM);
    wait_until("the listener to close", || Stream::try_connect(&edge).is_err());
    let path = format!("/api/v1/pools/pool/backends/{address}");
    let (status, body) = pointsman.admin_with("POST", &path, "{\"admin\":\"drain\"}");
    assert!(status == 503 && body.contains("stopping"), "{status} {body}");
    drop(held);
}
