//! What a reload may change, what it keeps, what it refuses, and how it is asked for.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::time::Instant;

use rustix::process::Signal;

use crate::harness::{
    Backend, Hideable, PATIENCE, Pointsman, Stream, command, one_listener, wait_until,
};

/// The listeners `edge` and, if asked for, `extra`, in front of one unchecked pool.
fn listeners(backend: &Backend, extra: bool) -> String {
    let yaml = one_listener("", &[&backend.address()], "");
    let more = "pool: pool }, extra: { bind: \"127.0.0.1:0\", pool: pool } }\npools";
    if extra { yaml.replace("pool: pool } }\npools", more) } else { yaml }
}

fn exchange(stream: &mut Stream) {
    stream.send(100);
    stream.receive(100);
}

fn end(mut stream: Stream) {
    stream.finish();
    stream.expect_end();
}

/// Right after the answer nobody can connect to what was removed; who had connected goes on.
#[test]
fn a_removed_listener_refuses_at_once_and_its_sessions_go_on() {
    let backend = Backend::echo();
    let pointsman = Pointsman::start(&listeners(&backend, false));
    let mut sessions = Vec::new();
    for _ in 0..30 {
        pointsman.reload(&listeners(&backend, true)).unwrap();
        let address = pointsman.address("extra");
        let mut session = Stream::connect(&address);
        exchange(&mut session);
        sessions.push(session);
        pointsman.reload(&listeners(&backend, false)).unwrap();
        let refused = Stream::try_connect(&address).map(|_| "connected").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    }
    sessions.iter_mut().for_each(exchange);
    let count = sessions.len() as f64;
    assert_eq!(pointsman.metrics().active("extra"), count);
    sessions.into_iter().for_each(end);
    for record in pointsman.access_log(count as usize) {
        assert_eq!(
            (record.text("listener"), record.text("termination")),
            ("extra", "client_closed")
        );
    }
    // Nothing is left of it then.
    wait_until("its series to disappear", || {
        !pointsman.metrics().names().iter().any(|series| series.contains("extra"))
    });
    pointsman.stop();
}

/// Where the kernel chose the port, a reload keeps it, and no two listeners share one.
#[test]
fn listeners_on_chosen_ports_keep_them() {
    let backend = Backend::echo();
    let yaml = listeners(&backend, true);
    let pointsman = Pointsman::start(&yaml);
    let both = |pointsman: &Pointsman| (pointsman.address("edge"), pointsman.address("extra"));
    let before = both(&pointsman);
    assert_ne!(before.0, before.1);
    let turned =
        yaml.replace("edge:", "EDGE:").replace("extra:", "edge:").replace("EDGE:", "extra:");
    for yaml in [&yaml, &turned, &yaml] {
        pointsman.reload(yaml).unwrap();
        assert_eq!(both(&pointsman), before);
    }
    end(pointsman.connect("extra"));
    let metrics = pointsman.wait_idle();
    let total = |listener| metrics.value("pointsman_connections_total", &[("listener", listener)]);
    assert_eq!((total("edge"), total("extra")), (0.0, 1.0));
    pointsman.stop();
}

#[test]
fn a_removed_backend_lives_as_long_as_its_sessions() {
    let (stays, goes) = (Backend::echo(), Backend::echo());
    let (name, both) = (goes.address(), [&*stays.address(), &*goes.address()]);
    let yaml = one_listener("", &both, "balance: round_robin");
    let pointsman = Pointsman::start(&yaml);
    let mut sessions: Vec<_> = (0..4).map(|_| pointsman.connect("edge")).collect();
    sessions.iter_mut().for_each(exchange);
    let labels = [("pool", "pool"), ("backend", &*name)];
    let total = || pointsman.metrics().value("pointsman_backend_connections_total", &labels);
    assert_eq!(total(), 2.0);

    let without = one_listener("", &[&stays.address()], "balance: round_robin");
    pointsman.reload(&without).unwrap();
    sessions.iter_mut().for_each(exchange);
    assert_eq!(total(), 2.0);
    let fresh: Vec<_> = (0..4).map(|_| pointsman.connect("edge")).collect();
    for mut session in fresh {
        exchange(&mut session);
        end(session);
    }
    assert_eq!(total(), 2.0, "it gets no more connections");
    // While it lives it comes back as itself.
    pointsman.reload(&yaml).unwrap();
    assert_eq!(total(), 2.0);
    pointsman.reload(&without).unwrap();

    sessions.into_iter().for_each(end);
    wait_until("its series to disappear", || {
        !pointsman.metrics().names().iter().any(|series| series.contains(&name))
    });
    pointsman.stop();
}

#[test]
fn what_is_fixed_at_the_start_is_refused() {
    let backend = Backend::echo();
    let pointsman = Pointsman::start(&listeners(&backend, false));
    let yaml = fs::read_to_string(pointsman.config()).unwrap();
    for (changed, expected) in [
        (format!("{yaml}workers: 7\n"), "workers: a reload cannot change it; restart"),
        (yaml.replace("admin.sock", "other.sock"), "admin: a reload cannot change it; restart"),
        (yaml.replace("admin:", "# admin:"), "admin: a reload cannot change it; restart"),
    ] {
        fs::write(pointsman.config(), changed).unwrap();
        let error = pointsman.reload_file().unwrap_err();
        assert!(error.contains(expected), "{error}");
        assert_eq!(pointsman.status()["generation"], 1);
    }
    assert!(!pointsman.directory().join("other.sock").exists());
    fs::write(pointsman.config(), yaml).unwrap();
    assert_eq!(pointsman.reload_file(), Ok(2));
    pointsman.stop();
}

/// One listener in the way, and none of the others is opened either.
#[test]
fn an_address_in_use_changes_nothing() {
    let (backend, other) = (Backend::echo(), Backend::echo());
    let foreign = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = foreign.local_addr().unwrap().to_string();
    let pointsman = Pointsman::start(&listeners(&backend, false));
    let yaml = listeners(&other, true).replace(
        "extra: { bind: \"127.0.0.1:0\"",
        &format!("extra: {{ bind: [\"unix:DIR/extra\", \"{taken}\"]"),
    );
    let error = pointsman.reload(&yaml).unwrap_err();
    assert!(error.contains(&format!("listener extra: cannot listen on {taken}: ")), "{error}");
    assert!(!pointsman.directory().join("extra").exists());
    let mut session = pointsman.connect("edge");
    exchange(&mut session);
    end(session);
    assert_eq!((backend.accepted(), other.accepted()), (1, 0));

    drop(foreign);
    assert_eq!(pointsman.reload(&yaml), Ok(2));
    let mut session = Stream::connect(&taken);
    exchange(&mut session);
    end(session);
    assert_eq!((backend.accepted(), other.accepted()), (1, 1));
    pointsman.stop();
}

#[test]
fn reloads_at_once_are_done_one_after_the_other() {
    const ASKING: u64 = 8;
    let backend = Backend::echo();
    let pointsman = Pointsman::start(&listeners(&backend, false));
    let generations: BTreeSet<u64> = std::thread::scope(|scope| {
        let ask = |_| scope.spawn(|| pointsman.reload_file().unwrap());
        let asking: Vec<_> = (0..ASKING).map(ask).collect();
        asking.into_iter().map(|answer| answer.join().unwrap()).collect()
    });
    assert_eq!(generations, (2..2 + ASKING).collect());
    pointsman.stop();
}

/// Health is known once: a reload neither forgets nor checks again.
#[test]
fn what_is_known_of_health_stays_known() {
    let backends = [Backend::echo(), Backend::refusing()];
    let [live, dead] = [backends[0].address(), backends[1].address()];
    let yaml = |weight: u32| {
        format!(
            "listeners: {{ edge: {{ bind: \"127.0.0.1:0\", pool: pool }} }}\n\
             pools: {{ pool: {{ balance: round_robin, health: {{ interval: 60s }}, backends: [\
             {{ address: \"{live}\", weight: {weight} }}, \"{dead}\"] }} }}\n"
        )
    };
    let pointsman = Pointsman::start(&yaml(1));
    for weight in 2..=5 {
        pointsman.reload(&yaml(weight)).unwrap();
        let status = pointsman.status();
        let backends = &status["pools"]["pool"]["backends"];
        assert_eq!(
            (&backends[&live]["state"], &backends[&dead]["state"]),
            (&"up".into(), &"down".into())
        );
        for _ in 0..4 {
            end(pointsman.connect("edge"));
        }
    }
    for record in pointsman.access_log(16) {
        assert_eq!(record.attempts(), [(live.clone(), "connected".to_owned())]);
    }
    let metrics = pointsman.metrics();
    assert_eq!(metrics.sum("pointsman_backend_checks_total", ("pool", "pool")), 2.0);
    pointsman.stop();
}

/// A pool by another name is a new one: its backends are checked at once, not at the next turn of
/// the probe that was for the old one.
#[test]
fn a_renamed_pool_does_not_wait_for_the_next_turn() {
    let backend = Backend::echo();
    let yaml = |pool: &str| {
        format!(
            "listeners: {{ edge: {{ bind: \"127.0.0.1:0\", pool: {pool} }} }}\n\
             pools: {{ {pool}: {{ backends: [\"{}\"], health: {{ interval: 60s }} }} }}\n",
            backend.address()
        )
    };
    let pointsman = Pointsman::start(&yaml("before"));
    let begun = Instant::now();
    pointsman.reload(&yaml("after")).unwrap();
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    let mut session = pointsman.connect("edge");
    exchange(&mut session);
    end(session);
    assert_eq!(backend.accepted(), 3, "two checks and one connection");
    pointsman.stop();
}

/// Both a new pool and new backends in an old one wait for their first check.
#[test]
fn a_new_backend_gets_no_connection_before_its_first_check() {
    let three = [Backend::echo(), Backend::echo(), Backend::refusing()];
    let yaml = |pool: &str, backends: &[&str]| {
        format!(
            "listeners: {{ edge: {{ bind: \"127.0.0.1:0\", pool: {pool} }} }}\n\
             pools: {{ {pool}: {{ balance: round_robin, connect: {{ attempts: 1 }},\
             health: {{ interval: 1s }}, backends: [{}] }} }}\n",
            backends.join(", ")
        )
    };
    let [old, new, dead] = [0, 1, 2].map(|index| format!("\"{}\"", three[index].address()));
    let unused = old.replacen('"', "{ address: \"", 1) + ", weight: 0 }";
    let pointsman = Pointsman::start(&yaml("first", &[&old]));
    for (pool, backends) in [
        ("first", [&*old, &dead].as_slice()),
        ("second", &[&dead, &new]),
        ("first", &[&old]),
        ("first", &[&unused, &dead, &new]),
        ("first", &[&dead, &old]),
        ("third", &[&old, &new]),
    ] {
        pointsman.reload(&yaml(pool, backends)).unwrap();
        for _ in 0..8 {
            let mut session = pointsman.connect("edge");
            exchange(&mut session);
            end(session);
        }
    }
    for record in pointsman.access_log(48) {
        assert_eq!(record.text("termination"), "client_closed", "{record:?}");
    }
    let log = pointsman.log();
    assert!(!log.contains("panic"), "{log}");
    pointsman.stop();
}

#[test]
fn a_signal_reloads_as_well() {
    let backends = [Backend::echo(), Backend::echo()];
    let pointsman = Pointsman::start(&listeners(&backends[0], false));
    pointsman.configure(&listeners(&backends[1], false));
    pointsman.signal(Signal::HUP);
    wait_until("generation 2", || pointsman.status()["generation"] == 2);
    pointsman.wait_for_log("reloaded");
    pointsman.configure("listeners: []");
    pointsman.signal(Signal::HUP);
    pointsman.wait_for_log("reload failed; the configuration stays as it was");
    let last = pointsman.metrics().value("pointsman_config_last_reload_success", &[]);
    assert_eq!((last, &pointsman.status()["generation"]), (0.0, &2.into()));
    let mut session = pointsman.connect("edge");
    exchange(&mut session);
    end(session);
    assert_eq!((backends[0].accepted(), backends[1].accepted()), (0, 1));
    pointsman.stop();
}

#[test]
fn the_command_prints_the_answer() {
    let backend = Backend::echo();
    let good = one_listener("", &[&backend.address()], "");
    let pointsman = Pointsman::start(&good);
    let admin = pointsman.admin_address();
    let reload = || command(&["reload", "--admin", &admin]);
    let answer = reload();
    assert_eq!(answer.success(), "reloaded: generation 2\n");

    pointsman.configure(&good.replace("health: off", "helth: off"));
    let answer = reload();
    assert_eq!((answer.code, answer.stdout.as_str()), (1, ""));
    let mut lines = answer.stderr.lines();
    let first = lines.next().unwrap();
    assert!(first.contains("pointsman.yaml:4:"), "{first}");
    assert!(first.ends_with("unknown key `helth`; did you mean `health`?"), "{first}");
    assert_eq!(lines.next(), Some("pointsman: not reloaded; the old configuration stays in force"));

    pointsman.configure(&good);
    assert_eq!(reload().success(), "reloaded: generation 3\n");
    pointsman.stop();
}

/// While a new pool keeps a reload waiting, what is in force is looked after as before: a backend
/// that is to go is ejected when it dies, and the operator can take one out.
#[test]
fn a_slow_reload_keeps_nothing_waiting() {
    let (gone, stays, silent) = (Hideable::shown(), Backend::echo(), Backend::manual());
    let config = |backends: &[&str], more: &str| {
        let list: Vec<_> = backends.iter().map(|address| format!("\"{address}\"")).collect();
        format!(
            "listeners: {{ edge: {{ bind: \"127.0.0.1:0\", pool: pool }} }}\npools:\n  \
             pool: {{ backends: [{}], health: {{ interval: 100ms, fall: 2 }} }}\n{more}",
            list.join(", ")
        )
    };
    let (going, staying) = (gone.address(), stays.address());
    let pointsman = Pointsman::start(&config(&[&going, &staying], ""));
    let slow = format!(
        "  slow: {{ backends: [\"{}\"], health: {{ type: tls, interval: 5s, timeout: 5s }} }}\n",
        silent.address()
    );
    pointsman.configure(&config(&[&staying], &slow));
    std::thread::scope(|scope| {
        let reload = scope.spawn(|| pointsman.reload_file());
        let asked = silent.accept();
        gone.hide();
        wait_until("it to be found down", || pointsman.state(&going) == "down");
        assert!((0..20).all(|_| pointsman.echoes()));
        pointsman.change(&staying, r#"{"admin":"drain"}"#);
        pointsman.change(&staying, r#"{"admin":"ready"}"#);
        assert!(!reload.is_finished(), "the reload was not waited for");
        asked.reset();
        assert!(reload.join().unwrap().is_ok());
    });
    assert!(pointsman.echoes());
}
