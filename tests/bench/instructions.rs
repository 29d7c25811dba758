//! Counts the instructions of what every connection goes through, under valgrind: they do not depend
//! on what else the machine does. `cargo bench --bench instructions` compares them with a baseline,
//! and fails where they are others; with `-- --bless` they become the baseline.

use std::env;
use std::fmt::Write;
use std::fs;
use std::hint::black_box;
use std::process::{Command, ExitCode};

use pointsman::route::{Request, RouteSpec, Routes};
use pointsman::snapshot::Tried;
use pointsman::wire::Alpn;
use pointsman::wire::client_hello::{Answer, Reader};

use pools::{BALANCES, Case, Loaded};

mod pools;

const BASELINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/instructions.txt");
const BLESS: &str = "cargo bench --bench instructions -- --bless";

/// How much a count may differ from the baseline, in percent.
const TOLERANCE: f64 = 10.0;
/// How much it may be above the baseline of another compiler, which generates other code: what
/// grows with the number of names or backends is still found.
const OTHER_COMPILER: f64 = 50.0;

/// Of each case; a count is their average.
const OPERATIONS: u64 = 1000;
const NAMES: u64 = 10_000;
const BACKENDS: usize = 1000;
const HELLOS: [&str; 2] = ["chromium-156", "firefox-esr"];

fn main() -> ExitCode {
    // cargo says `--bench`.
    let arguments: Vec<String> = env::args().skip(1).filter(|word| word != "--bench").collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => compare(),
        ["--bless"] => bless(),
        ["run", case] => run(case),
        _ => panic!("unknown arguments {arguments:?}"),
    }
}

fn cases() -> Vec<String> {
    let hellos = HELLOS.iter().map(|name| format!("hello {name}"));
    let routes = ["hit", "miss"].map(|what| format!("route {what}"));
    let picks = BALANCES.iter().map(|balance| format!("pick {}", of_policy(balance)));
    hellos.chain(routes).chain(picks).collect()
}

fn of_policy(balance: &'static str) -> Case {
    Case { balance, backends: BACKENDS, down: false }
}

fn bless() -> ExitCode {
    let mut text = format!("# Instructions an operation. Written by: {BLESS}\n{}\n", compiler());
    for case in cases() {
        writeln!(text, "{case}: {}", count(&case)).expect("a string takes it");
    }
    print!("{text}");
    fs::write(BASELINE, text).expect("the baseline is writable");
    ExitCode::SUCCESS
}

fn compare() -> ExitCode {
    let text = fs::read_to_string(BASELINE).expect("a baseline");
    let same = text.lines().any(|line| line == compiler());
    if !same {
        println!("{} is not the baseline's: +{OTHER_COMPILER} % are allowed", compiler());
    }
    let mut failed = false;
    for case in cases() {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{case}: ")));
        let before: f64 = line.map_or(0.0, |count| count.parse().expect("a count"));
        let now = count(&case);
        let change = (now as f64 / before - 1.0) * 100.0;
        let wrong = if same { change.abs() > TOLERANCE } else { change > OTHER_COMPILER };
        let mark = if wrong { "  <- not as before" } else { "" };
        println!("{case:30} {before:8} {now:8} {change:+7.1} %{mark}");
        failed |= wrong;
    }
    if failed {
        println!("If that is meant, or a gain to keep, make it the baseline: {BLESS}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// The compiler and what it compiles for.
fn compiler() -> String {
    let rustc = Command::new("rustc").arg("--version").output().expect("rustc is in the PATH");
    let text = String::from_utf8(rustc.stdout).expect("text");
    let version = text.split(' ').nth(1).expect("rustc and its version");
    format!("rustc {version} {}", env::consts::ARCH)
}

/// Instructions of an operation.
fn count(case: &str) -> u64 {
    let valgrind = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(format!("--toggle-collect={}::counted*", module_path!()))
        .arg(env::current_exe().expect("a program"))
        .args(["run", case])
        .output()
        .expect("valgrind is installed");
    let said = String::from_utf8_lossy(&valgrind.stderr);
    let collected = said.lines().find_map(|line| line.split_once("Collected :"));
    let count: u64 = collected.map_or(0, |(_, count)| count.trim().parse().expect("a number"));
    assert!(valgrind.status.success() && count > 0, "{case}: {said}");
    count / OPERATIONS
}

/// The only function whose instructions are counted, with all it calls.
#[inline(never)]
fn counted(operation: &mut dyn FnMut(u64)) {
    for number in 0..OPERATIONS {
        operation(number);
    }
}

fn run(case: &str) -> ExitCode {
    match case.split_once(' ') {
        Some(("hello", name)) => hello(name),
        Some(("route", what)) => route(what == "hit"),
        Some(("pick", name)) => pick(name),
        _ => panic!("no case {case}"),
    }
    ExitCode::SUCCESS
}

fn hello(name: &str) {
    let path = format!("{}/tests/data/hellos/{name}.bin", env!("CARGO_MANIFEST_DIR"));
    let flight = fs::read(path).expect("a captured flight");
    counted(&mut |_| {
        let answer = Reader::new(flight.len()).advance(black_box(&flight));
        assert!(matches!(answer, Answer::Hello(_)));
    });
}

/// A route a name, half of them wildcards.
fn route(hit: bool) {
    let pattern = |n: u64| match n % 2 {
        0 => format!("host-{n}.customers.example.com"),
        _ => format!("*.zone-{n}.example.net"),
    };
    let sni = |n| vec![pattern(n).parse().expect("a pattern")];
    let specs: Vec<_> =
        (0..NAMES).map(|n| RouteSpec { sni: sni(n), ..RouteSpec::default() }).collect();
    let routes = Routes::compile(&specs);
    let asked = |n: u64| {
        // All over the names.
        let name = pattern(n * 7919 % NAMES).replace('*', "www");
        if hit { name } else { format!("{name}.org") }
    };
    let names: Vec<_> = (0..OPERATIONS).map(asked).collect();
    let alpn = Alpn::from_names(["h2", "http/1.1"]).expect("two names");
    counted(&mut |n| {
        let sni = Some(names[n as usize].as_str());
        let found = routes.find(black_box(&Request { sni, alpn: &alpn, source: None }));
        assert_eq!(found.is_some(), hit);
    });
}

fn pick(name: &str) {
    let mut cases = BALANCES.iter().map(|balance| of_policy(balance));
    let case = cases.find(|case| case.to_string() == name).expect("a policy");
    let loaded = Loaded::new(case);
    counted(&mut |n| {
        let mut rng = fastrand::Rng::with_seed(n);
        let hash = rng.u64(..);
        assert!(loaded.pool.choose(&Tried::default(), black_box(hash), &mut rng).is_some());
    });
}
