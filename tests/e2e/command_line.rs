//! The commands as a user types them: what they print, and their exit codes.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;
use socket2::{Domain, Socket, Type};

use crate::harness::{
    Answer, Backend, Background, Pointsman, Stream, command, finish, fresh_directory, one_listener,
    wait_for,
};

/// A file that is removed when dropped.
struct Written(PathBuf);

impl Written {
    fn new(yaml: &str) -> Self {
        let directory = fresh_directory();
        fs::write(directory.join("test.yaml"), yaml).unwrap();
        Written(directory)
    }

    fn path(&self) -> String {
        self.0.join("test.yaml").to_str().unwrap().to_owned()
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        let _kept = fs::remove_dir_all(&self.0);
    }
}

fn check(yaml: &str) -> Answer {
    let file = Written::new(yaml);
    let mut answer = command(&["check", "-c", &file.path()]);
    answer.stderr = answer.stderr.replace(&file.path(), "FILE");
    answer
}

#[test]
fn check_tells_good_from_suspicious_from_wrong() {
    let good = one_listener("", &["127.0.0.1:1"], "");
    let answer = check(&good);
    assert_eq!((answer.code, answer.stderr.as_str()), (0, ""));
    let expected = "\
workers auto, max_connections auto, admin off

LISTENER  BIND         PROTOCOL  ROUTE            LEADS TO
edge      127.0.0.1:0  tcp       everything else  pool

POOL  BALANCE     BACKENDS  WEIGHT  HEALTH  PANIC
pool  least_conn  1         1       off     0
";
    assert_eq!(answer.stdout, expected);

    let answer = check(&good.replace("\"127.0.0.1:1\"", "{ address: 127.0.0.1:1, weight: 0 }"));
    assert_eq!(answer.code, 0, "a warning is no failure");
    let warning = "pools.pool: all weights are 0";
    assert!(answer.stderr.starts_with("FILE:2:") && answer.stderr.contains(warning), "{answer:?}");
    assert_eq!(answer.stderr.lines().count(), 1);

    let answer =
        check(&good.replace("pool: pool", "pol: pool").replace("health: off", "health: on"));
    assert_eq!((answer.code, answer.stdout.as_str()), (1, ""));
    let lines: Vec<_> = answer.stderr.lines().collect();
    assert!(lines[0].starts_with("FILE:1:"), "{lines:?}");
    assert!(lines.iter().any(|line| line.contains("did you mean `pool`?")), "{lines:?}");
    assert!(lines.iter().any(|line| line.starts_with("FILE:2:")), "all in one run: {lines:?}");

    let answer = command(&["check", "-c", "/nonexistent/file.yaml"]);
    assert_eq!(answer.code, 1);
    assert!(answer.stderr.starts_with("/nonexistent/file.yaml: "), "{answer:?}");
}

#[test]
fn explain_answers_or_says_why_not() {
    let explain = |arguments: &[&str]| {
        let file = ["explain", "-c", "conf/sni.yaml", "--listener"];
        command(&[&file[..], arguments].concat())
    };
    let tenant = ["edge", "--sni", "A.Tenants.example.com."];
    let expected = "\npool      tenants, maglev of sni\nkey       a.tenants.example.com: hash 0x";
    let answer = explain(&tenant).success();
    assert!(answer.contains(expected), "{answer}");
    let hello = ["edge", "--hello", "tests/data/hellos/openssl-tls12.bin"];
    let answer = explain(&hello).success();
    assert!(answer.ends_with("rejected with the TLS alert unrecognized_name (rejected)\n"));
    for (arguments, code, expected) in [
        (&["egde"][..], 1, "pointsman: there is no listener `egde`; did you mean `edge`?\n"),
        (&["edge", "--hello", "none.bin"], 1, "pointsman: cannot read none.bin: No such file"),
        (&["edge", "--hello", "f", "--alpn", "h2"], 2, "error: the argument '--hello <FILE>'"),
        (&["edge", "--sni", "*.example.com"], 2, "error: invalid value '*.example.com' for"),
    ] {
        let answer = explain(arguments);
        assert_eq!((answer.code, answer.stdout.as_str()), (code, ""), "{arguments:?}");
        assert!(answer.stderr.starts_with(expected), "{answer:?}");
    }
    let invalid = ["explain", "-c", "tests/data/config/fail/empty.yaml", "--listener", "edge"];
    let answer = command(&invalid);
    assert_eq!(answer.code, 1);
    assert!(answer.stderr.starts_with("tests/data/config/fail/empty.yaml:"), "{answer:?}");
}

#[test]
fn simulate_answers_or_says_why_not() {
    let thirty =
        ["simulate", "--clients", "30", "--requests", "2000", "--service", "constant:20ms"];
    let one = [&thirty[..], &["--backends", "1", "--policy", "round_robin"]].concat();
    let answer: Value =
        serde_json::from_str(&command(&[&one[..], &["--format", "json"]].concat()).success())
            .unwrap();
    let policy = &answer["policies"][0];
    let latency = &policy["latency_ms"];
    assert_eq!((&policy["total_ms"], &latency["mean"]), (&10_000.0.into(), &149.02.into()));
    assert_eq!((&latency["p50"], &latency["p95"]), (&140.0.into(), &160.0.into()));
    let table = command(&one).success();
    assert!(table.contains("\nround_robin       2000       0     0     10000   149.02  140  160"));
    let none = [&thirty[..], &["--backends", "0"]].concat();
    let endless = ["simulate", "--backends", "1", "--clients", "1", "--service", "20s"];
    let endless = [&endless[..], &["--requests", "10000000", "--no-checks"]].concat();
    for (arguments, code, expected) in [
        (&["simulate"][..], 2, "error: the following required arguments were not provided:"),
        (&none, 2, "error: 0 backends; 1 to 10000 are possible\n"),
        (&["simulate", "plan"], 2, "error: the following required arguments were not provided:"),
        (&["simulate", "tail", "--p", "2"], 2, "error: invalid value '2' for '--p <P>': not bet"),
        (&endless, 1, "pointsman: not done after 30 days; give it a duration\n"),
    ] {
        let answer = command(arguments);
        assert_eq!((answer.code, answer.stdout.as_str()), (code, ""), "{arguments:?}");
        assert!(answer.stderr.starts_with(expected), "{answer:?}");
    }
}

/// Not even while the addresses are in use, not even to look.
#[test]
fn check_opens_no_socket() {
    let backend = Backend::echo();
    let pointsman = Pointsman::start(&one_listener("", &[&backend.address()], ""));
    let edge = pointsman.address("edge");
    let yaml = one_listener("", &[&backend.address()], "").replace("127.0.0.1:0", &edge);
    let checked = yaml.replace("health: off", "health: { interval: 1ms }");
    let file =
        Written::new(&format!("{checked}admin: {{ bind: \"{}\" }}\n", pointsman.admin_address()));
    let trace = file.0.join("trace");
    let answer =
        finish(
            Command::new("strace")
                .args(["-f", "-qq", "-e", "trace=network", "-o"])
                .arg(&trace)
                .args([env!("CARGO_BIN_EXE_pointsman"), "check", "-c", &file.path()]),
        );
    assert!(answer.success().contains(&edge));
    let calls = fs::read_to_string(trace).unwrap();
    let calls: Vec<_> = calls.lines().filter(|line| !line.contains("+++")).collect();
    assert!(calls.is_empty(), "{calls:?}");
    assert_eq!(backend.accepted(), 0);
    pointsman.stop();
}

#[test]
fn wrong_usage_is_exit_code_2() {
    for arguments in [
        &[][..],
        &["fly"],
        &["completions", "bash"],
        &["check"],
        &["run"],
        &["run", "--listen", "127.0.0.1:0"],
        &["run", "--listen", "localhost:80", "--backend", "127.0.0.1:1"],
        &["run", "--listen", "127.0.0.1:0", "--backend", "127.0.0.1"],
        &["run", "--listen", "127.0.0.1:0", "--backend", "127.0.0.1:1", "--balance", "lest_conn"],
        &["status", "--admin", "nowhere"],
        &["demo", "--for", "3"],
    ] {
        let answer = command(arguments);
        assert_eq!((answer.code, answer.stdout.as_str()), (2, ""), "{arguments:?}");
        assert!(!answer.stderr.is_empty(), "{arguments:?}");
    }
    for arguments in [&["--version"][..], &["--help"], &["run", "--help"]] {
        let answer = command(arguments);
        assert!(
            answer.stderr.is_empty() && answer.success().contains("pointsman"),
            "{arguments:?}"
        );
    }
}

#[test]
fn run_with_flags() {
    let backends = [Backend::echo(), Backend::echo()];
    let [first, second] = [backends[0].address(), backends[1].address()];
    let mut running = Background::start(&[
        "run",
        "--listen",
        "127.0.0.1:0",
        "--listen",
        "[::1]:0",
        "--backend",
        &first,
        "--backend",
        &second,
        "--balance",
        "round_robin",
        "--admin",
        "127.0.0.1:0",
    ]);
    let admin = running.logged(" admin=");
    let status = command(&["status", "--json", "--admin", &admin]).success();
    let status: Value = serde_json::from_str(&status).unwrap();
    let (ready, listen) = (&status["ready"], &status["listeners"]["listen"]);
    assert_eq!(ready, true);
    let binds = listen["bind"].as_array().unwrap();
    assert!(binds[0].as_str().unwrap().starts_with("127.0.0.1:"), "{binds:?}");
    assert!(binds[1].as_str().unwrap().starts_with("[::1]:"), "{binds:?}");
    for bind in binds {
        for _ in 0..2 {
            let mut client = Stream::connect(bind.as_str().unwrap());
            client.send(10);
            client.receive(10);
        }
    }
    // Checks are connections too, so the numbers are taken from the status.
    let status = command(&["status", "--json", "--admin", &admin]).success();
    let status: Value = serde_json::from_str(&status).unwrap();
    let backends = &status["pools"]["pool"]["backends"];
    assert_eq!((&backends[&first]["total"], &backends[&second]["total"]), (&2.into(), &2.into()));

    let answer = command(&["reload", "--admin", &admin]);
    assert_eq!(answer.code, 1);
    assert!(answer.stderr.starts_with("started from flags"), "{answer:?}");
    running.signal(Signal::INT);
    assert_eq!(running.wait(), Some(0));
    assert!(running.stderr().contains("stopped"), "{}", running.stderr());
}

/// Another program's, another one's that shares its port, and another pointsman's.
#[test]
fn run_names_the_address_in_use() {
    let backend = Backend::echo();
    let sharing = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    sharing.set_reuse_port(true).unwrap();
    sharing.bind(&"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
    sharing.listen(1).unwrap();
    let sharing = TcpListener::from(sharing);
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let pointsman = Pointsman::start(&one_listener("", &[&backend.address()], ""));
    for address in [
        sharing.local_addr().unwrap().to_string(),
        plain.local_addr().unwrap().to_string(),
        pointsman.address("edge"),
    ] {
        let file = Written::new(
            &one_listener("", &[&backend.address()], "").replace("127.0.0.1:0", &address),
        );
        let answer = command(&["run", "-c", &file.path()]);
        assert_eq!(answer.code, 1, "{answer:?}");
        let expected = format!("pointsman: listener edge: cannot listen on {address}: ");
        assert!(answer.stderr.starts_with(&expected), "{answer:?}");
        let admin = command(&[
            "run",
            "--listen",
            "127.0.0.1:0",
            "--backend",
            "127.0.0.1:1",
            "--admin",
            &address,
        ]);
        assert_eq!(admin.code, 1, "{admin:?}");
        let expected = format!("pointsman: admin: cannot listen on {address}: ");
        assert!(admin.stderr.starts_with(&expected), "{admin:?}");
    }
    let socket = pointsman.admin_address();
    let answer = command(&["run", "--listen", &socket, "--backend", "127.0.0.1:1"]);
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(answer.stderr.contains(&format!("cannot listen on {socket}: ")), "{answer:?}");
    // Nothing of it disturbed the one that runs.
    let mut client = pointsman.connect("edge");
    client.send(10);
    client.receive(10);
    drop(client);
    pointsman.stop();
}

#[test]
fn run_says_where_a_file_is_wrong() {
    let yaml = one_listener("", &["127.0.0.1:1"], "").replace("edge: {", "edge: { bund: 1,");
    let file = Written::new(&yaml);
    let answer = command(&["run", "-c", &file.path()]);
    assert_eq!((answer.code, answer.stdout.as_str()), (1, ""));
    let expected = format!(
        "{}:1:22: listeners.edge.bund: unknown key `bund`; did you mean `bind`?\n",
        file.path()
    );
    assert_eq!(answer.stderr, expected);
}

#[test]
fn status_as_a_table_and_as_json() {
    let (backend, dead) = (Backend::echo(), Backend::refusing());
    let yaml = one_listener("", &[&backend.address(), &dead.address()], "");
    let yaml = yaml.replace("health: off", "health: { interval: 60s }");
    let pointsman = Pointsman::start(&yaml);
    let session = pointsman.connect("edge");
    let labels = [("pool", "pool"), ("backend", &*backend.address())];
    wait_for("the session", || {
        let active = pointsman.metrics().value("pointsman_backend_connections_active", &labels);
        (active == 1.0).then_some(())
    });
    let admin = pointsman.admin_address();
    let table = command(&["status", "--admin", &admin]).success();
    let rows: Vec<Vec<&str>> = table.lines().map(|l| l.split_whitespace().collect()).collect();
    assert!(table.starts_with("pointsman ") && table.contains(", ready, "), "{table}");
    let row = |first: &str| rows.iter().find(|row| row.first() == Some(&first)).unwrap();
    assert_eq!(row("edge")[..5], ["edge", &pointsman.address("edge"), "pool", "1", "1"]);
    assert_eq!(row(&backend.address())[1..7], ["up", "1", "1", "1", "0", "ok"]);
    assert_eq!(row(&dead.address())[1..7], ["down", "1", "0", "0", "0", "refused"]);

    let json = command(&["status", "--json", "--admin", &admin]).success();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["listeners"], pointsman.status()["listeners"]);
    drop(session);
    pointsman.stop();
}

#[test]
fn with_nothing_running_commands_say_so() {
    let nobody = Backend::refusing();
    for admin in ["unix:/nonexistent/admin.sock", &nobody.address()] {
        for name in ["reload", "status"] {
            let answer = command(&[name, "--admin", admin]);
            assert_eq!((answer.code, answer.stdout.as_str()), (1, ""));
            let expected = format!(
                "pointsman: nothing answers on {admin}: is pointsman running with `admin` \
                 configured?\n"
            );
            assert_eq!(answer.stderr, expected);
        }
    }
}

/// Every line it prints to try works, and it ends by itself.
#[test]
fn the_demo_works_as_printed() {
    let mut demo = Background::start(&["demo", "--for", "3s"]);
    let text = wait_for("the lines to try", || {
        Some(demo.stdout()).filter(|text| text.contains("Ctrl-c ends it."))
    });
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    let curls: Vec<_> = lines.iter().filter_map(|line| line.strip_prefix("curl ")).collect();
    assert_eq!(curls.len(), 5, "{text}");
    for (arguments, expected) in curls.iter().zip([
        "with the certificate of shop.example.test",
        "This is api-1 with the certificate of api.example.test",
        "This is cdn-1 with the certificate of *.cdn.example.test",
        "pointsman_connections_total{listener=\"demo\"}",
        "\"ready\":true",
    ]) {
        let curl = |arguments: &str| {
            let options = ["-sSf", "--max-time", "5"];
            finish(Command::new("curl").args(options).args(arguments.split(' ')))
        };
        let answer = curl(arguments).success();
        assert!(answer.contains(expected), "{arguments}: {answer}");
        // No other name has a route.
        if arguments.contains("shop.example.test") {
            let answer = curl(&arguments.replace("shop.example.test", "old.example.test"));
            assert!(answer.code != 0 && answer.stderr.contains("unrecognized name"), "{answer:?}");
        }
    }
    let digs: Vec<_> = lines.iter().filter_map(|line| line.strip_prefix("dig ")).collect();
    assert_eq!(digs.len(), 2, "{text}");
    for (arguments, expected) in digs.iter().zip(["192.0.2.", "\"answered by dns-"]) {
        let answer = finish(Command::new("dig").args(arguments.split(' '))).success();
        assert!(answer.starts_with(expected), "{arguments}: {answer}");
    }
    let authority = curls[0].split(' ').nth(1).unwrap();
    assert!(fs::exists(authority).unwrap());
    let status = lines.iter().find_map(|line| line.split_once(" status --admin "));
    let status = format!("status --admin {}", status.unwrap().1);
    let status = command(&status.split(' ').collect::<Vec<_>>()).success();
    assert!(status.contains("demo") && status.contains("round_robin"), "{status}");

    assert_eq!(demo.wait(), Some(0));
    let text = demo.stdout();
    let summary = text.split_once("SUMMARY").unwrap_or_else(|| panic!("{text}")).1;
    assert!(summary.contains("No client noticed that backends failed."), "{text}");
    assert!(
        summary.lines().any(|line| line.starts_with("wrong certificate") && line.ends_with(" 0"))
    );
    assert!(!fs::exists(authority).unwrap(), "{authority} is left behind");
    assert_eq!(demo.stderr(), "");
}

#[test]
fn the_demo_can_be_interrupted() {
    let mut demo = Background::start(&["demo"]);
    wait_for("requests", || demo.stdout().contains("answered").then_some(()));
    demo.signal(Signal::INT);
    assert_eq!(demo.wait(), Some(0));
    assert!(demo.stdout().contains("SUMMARY"), "{}", demo.stdout());
}
