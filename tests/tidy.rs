//! The rules of the tree that no compiler knows: layers, names, lengths, bans. Each rule is a
//! function from a source to findings, and is shown below to find what it is for.

use std::fmt;
use std::path::Path;

#[path = "tidy/code.rs"]
mod code;

use code::{Source, brace_end, words};

/// Modules of `src/` and their layer. A module may use those of lower layers.
const LAYERS: &[(&str, u8)] = &[
    ("address", 0),
    ("balance", 0),
    ("flow", 0),
    ("health", 0),
    ("limits", 0),
    ("repeat", 0),
    ("route", 0),
    ("simulate", 0),
    ("wire", 0),
    ("config", 1),
    ("state", 1),
    ("snapshot", 2),
    ("sys", 2),
    ("net", 3),
    ("control", 4),
    ("observe", 4),
    ("proxy", 4),
    ("service", 5),
    ("cli", 6),
    ("lib", 7),
    ("main", 7),
];

/// Imports within a layer, each for a reason; within layer 0 all are fine.
const SIDEWAYS: &[(&str, &str)] = &[
    // A message to the access log's writer says where the configuration wants the records.
    ("state", "config"),
    // Listening sockets are bound before a snapshot is published, and belong to it.
    ("snapshot", "sys"),
];

/// Crates and the modules that may name them.
const CRATES: &[(&str, &[&str])] = &[
    ("aes", &["wire"]),
    ("anyhow", &["cli"]),
    ("clap", &["cli"]),
    ("hashbrown", &["flow"]),
    ("idna", &["route"]),
    ("metrics", &["observe"]),
    ("metrics_exporter_prometheus", &["observe"]),
    ("rcgen", &["cli"]),
    ("ring", &["wire"]),
    ("rustls", &["cli", "control"]),
    ("saphyr_parser", &["config"]),
    ("serde_yaml", &["config"]),
    ("tls_parser", &["wire"]),
    ("tokio_rustls", &["cli"]),
];

/// Names that say nothing about what is inside.
const EMPTY_NAMES: &[&str] = &["util", "utils", "helper", "helpers", "common", "misc"];

const FILE_LINES: usize = 500;
const FUNCTION_LINES: usize = 70;

/// Something a rule does not allow.
struct Finding {
    path: String,
    line: usize,
    what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

type Rule = fn(&Source) -> Vec<Finding>;

/// `(byte offset, what is wrong)` of a source as findings.
fn findings(source: &Source, rows: impl IntoIterator<Item = (usize, String)>) -> Vec<Finding> {
    let finding = |(at, what)| Finding { path: source.path.clone(), line: source.line(at), what };
    rows.into_iter().map(finding).collect()
}

fn layer(module: &str) -> Option<u8> {
    LAYERS.iter().find(|(name, _)| *name == module).map(|&(_, layer)| layer)
}

fn layers(source: &Source) -> Vec<Finding> {
    let Some(from) = source.module() else {
        return Vec::new();
    };
    let Some(own) = layer(from) else {
        return findings(source, [(0, format!("`{from}` is not in the table of layers"))]);
    };
    let verdict = |(at, to): (usize, &str)| {
        let allowed = match layer(to) {
            None => return Some((at, format!("`crate::{to}` is not in the table of layers"))),
            Some(0) if own == 0 => true,
            Some(other) => other < own || to == from || SIDEWAYS.contains(&(from, to)),
        };
        (!allowed).then(|| (at, format!("`{from}` may not use `{to}`: imports point downwards")))
    };
    findings(source, source.crate_imports().into_iter().filter_map(verdict))
}

fn unsafe_outside_sys(source: &Source) -> Vec<Finding> {
    if source.module().is_none_or(|module| module == "sys") {
        return Vec::new();
    }
    let found = words(&source.code, "unsafe");
    findings(source, found.map(|at| (at, "`unsafe` outside of `sys`".to_owned())))
}

fn empty_names(source: &Source) -> Vec<Finding> {
    let stem = source.path.trim_end_matches(".rs");
    let parts = stem.split('/').filter(|part| EMPTY_NAMES.contains(part));
    let files = parts.map(|part| (0, format!("the name `{part}` explains nothing")));
    let modules = words(&source.code, "mod").filter_map(|at| {
        let name = code::word_at(source.code[at + "mod".len()..].trim_start());
        EMPTY_NAMES.contains(&name).then(|| (at, format!("the name `{name}` explains nothing")))
    });
    findings(source, files.chain(modules))
}

fn lengths(source: &Source) -> Vec<Finding> {
    if source.module().is_none() {
        return Vec::new();
    }
    let mut rows = Vec::new();
    let lines = source.text.lines().count();
    if lines > FILE_LINES {
        rows.push((0, format!("{lines} lines; one room, or several?")));
    }
    for at in words(&source.code, "fn") {
        let Some(end) = brace_end(&source.code, at) else {
            continue;
        };
        let lines = source.line(end) - source.line(at) + 1;
        if lines > FUNCTION_LINES {
            rows.push((at, format!("a function of {lines} lines; at most {FUNCTION_LINES}")));
        }
    }
    findings(source, rows)
}

fn loose_ends(source: &Source) -> Vec<Finding> {
    let mut rows = Vec::new();
    for mark in ["TODO", "FIXME", "XXX"] {
        for at in words(&source.text, mark) {
            let line = source.text[at..].lines().next().unwrap_or_default();
            let numbered = line
                .match_indices('#')
                .any(|(hash, _)| line[hash + 1..].starts_with(|c: char| c.is_ascii_digit()));
            // A literal is data, such as the names in this very loop.
            let literal = source.literals.iter().any(|literal| literal.contains(&at));
            if !numbered && !literal {
                rows.push((at, format!("{mark} without the number of an issue, such as #12")));
            }
        }
    }
    findings(source, rows)
}

fn impure_layer_0(source: &Source) -> Vec<Finding> {
    if source.module().and_then(layer) != Some(0) || source.is_test() {
        return Vec::new();
    }
    let code = source.code_without_tests();
    let mut rows = Vec::new();
    for ban in ["Instant::now", "SystemTime::now", "tokio", "tracing"] {
        rows.extend(words(&code, ban).map(|at| (at, format!("`{ban}` in layer 0"))));
    }
    // Global randomness: the generator comes in as an argument.
    let global = code.match_indices("fastrand::").filter(|(at, found)| {
        let name = code::word_at(&code[at + found.len()..]);
        name != "Rng"
    });
    rows.extend(global.map(|(at, _)| (at, "global randomness in layer 0".to_owned())));
    findings(source, rows)
}

fn printing(source: &Source) -> Vec<Finding> {
    if source.module().is_none_or(|module| module == "cli") || source.is_test() {
        return Vec::new();
    }
    let code = source.code_without_tests();
    let mut rows = Vec::new();
    for name in ["print", "println", "eprint", "eprintln", "dbg"] {
        let calls = words(&code, name).filter(|at| code[at + name.len()..].starts_with('!'));
        rows.extend(calls.map(|at| (at, format!("`{name}!` outside of `cli`"))));
    }
    findings(source, rows)
}

fn crates(source: &Source) -> Vec<Finding> {
    let Some(module) = source.module() else {
        return Vec::new();
    };
    let mut rows = Vec::new();
    for (name, users) in CRATES.iter().filter(|(_, users)| !users.contains(&module)) {
        if names_another(&source.code, name) {
            continue;
        }
        // At the beginning of a path; `observe::metrics::` is a module.
        let uses = words(&source.code, name).filter(|&at| {
            let after = &source.code[at + name.len()..];
            after.starts_with("::") && !source.code[..at].ends_with("::")
        });
        rows.extend(uses.map(|at| (at, format!("the crate `{name}` belongs to {users:?}"))));
    }
    findings(source, rows)
}

/// Whether `name` is a module declared in this code, or imported from elsewhere: `ring` is a policy and a
/// provider of rustls too.
fn names_another(code: &str, name: &str) -> bool {
    words(code, name).any(|at| {
        let statement = code[..at].rsplit(';').next().unwrap_or_default().trim();
        let imported = statement.starts_with("use ") && !code[at + name.len()..].starts_with("::");
        statement.ends_with("mod") || imported
    })
}

fn ignored_tests(source: &Source) -> Vec<Finding> {
    let found = source.code.match_indices("#[ignore");
    findings(source, found.map(|(at, _)| (at, "a test that does not run proves nothing".into())))
}

fn unwraps(source: &Source) -> Vec<Finding> {
    if source.module().is_none() || source.is_test() {
        return Vec::new();
    }
    let code = source.code_without_tests();
    let found = code.match_indices(".unwrap()").map(|(at, _)| {
        (at, "`unwrap` outside of tests; a local invariant may `expect` why it holds".to_owned())
    });
    findings(source, found)
}

const RULES: &[(&str, Rule)] = &[
    ("layers", layers),
    ("unsafe", unsafe_outside_sys),
    ("names", empty_names),
    ("lengths", lengths),
    ("loose ends", loose_ends),
    ("purity of layer 0", impure_layer_0),
    ("printing", printing),
    ("crates", crates),
    ("ignored tests", ignored_tests),
    ("unwraps", unwraps),
];

#[test]
fn the_tree_is_tidy() {
    let sources = Source::tree(Path::new(env!("CARGO_MANIFEST_DIR")));
    assert!(sources.iter().any(|source| source.path == "src/lib.rs"), "looked in the wrong place");
    assert!(sources.iter().any(|source| source.path == "tests/tidy.rs"));
    let mut report = String::new();
    for (name, rule) in RULES {
        for finding in sources.iter().flat_map(rule) {
            report += &format!("\n{finding} ({name})");
        }
    }
    assert!(report.is_empty(), "{report}");
}

/// `cargo update --manifest-path tests/fuzz/Cargo.toml -p NAME --precise VERSION` makes it so.
#[test]
fn fuzzers_are_built_from_what_the_program_is_built_from() {
    let read = |path| {
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path))
            .expect("a lock file")
    };
    let [own, fuzzers] = ["Cargo.lock", "tests/fuzz/Cargo.lock"].map(|path| locked(&read(path)));
    let manifest = read("Cargo.toml");
    let (_, dependencies) = manifest.split_once("\n[dependencies]\n").expect("dependencies");
    let (dependencies, _) = dependencies.split_once("\n[").expect("another section");
    for line in dependencies.lines().filter(|line| !line.is_empty()) {
        let renamed = line.split_once("package = \"").and_then(|(_, name)| name.split('"').next());
        let name = renamed.or(line.split(' ').next()).expect("a name");
        let of = |lock: &[(String, String)]| -> Vec<String> {
            lock.iter().filter(|(n, _)| n == name).map(|(_, version)| version.clone()).collect()
        };
        assert!(!of(&own).is_empty(), "{name} is not in Cargo.lock");
        assert_eq!(of(&own), of(&fuzzers), "{name}");
    }
}

/// Names and versions of a lock file.
fn locked(text: &str) -> Vec<(String, String)> {
    let package = |package: &str| {
        let (name, rest) = package.strip_prefix("name = \"")?.split_once('"')?;
        let version = rest.trim_start().strip_prefix("version = \"")?.split('"').next()?;
        Some((name.to_owned(), version.to_owned()))
    };
    text.split("[[package]]\n").filter_map(package).collect()
}

/// Asserts the lines at which `rule` finds something in a file of this text.
#[track_caller]
fn check(rule: Rule, path: &str, text: &str, expected: &[usize]) {
    let found = rule(&Source::new(path, text));
    let lines: Vec<_> = found.iter().map(|finding| finding.line).collect();
    let said: Vec<_> = found.iter().map(Finding::to_string).collect();
    assert_eq!(lines, expected, "{path}: {text:?}: {said:?}");
}

#[test]
fn layers_find_imports_upwards_and_sideways() {
    check(layers, "src/wire/a.rs", "use crate::state::X;", &[1]);
    check(layers, "src/wire/a.rs", "use crate::limits;\nuse crate::wire::b;", &[]);
    check(layers, "src/address.rs", "fn f() { crate::config::g() }", &[1]);
    check(
        layers,
        "src/proxy/mod.rs",
        "use crate::{\n  control::A,\n  net::{B, observe},\n};",
        &[2],
    );
    check(layers, "src/control/a.rs", "pub use crate::{limits, proxy};", &[1]);
    check(layers, "src/observe/a.rs", "use crate::service;", &[1]);
    check(layers, "src/config/a.rs", "use crate::state::A;", &[1]);
    check(layers, "src/state/a.rs", "use crate::config::A;", &[]);
    check(layers, "src/sys/a.rs", "use crate::snapshot::A;", &[1]);
    check(layers, "src/cli/a.rs", "use crate::service::A;\nuse crate::observe::B;", &[]);
    check(layers, "src/net/a.rs", "// crate::proxy\nlet a = \"crate::proxy\";", &[]);
    check(layers, "src/net/a.rs", "use crate::elsewhere;", &[1]);
    check(layers, "src/elsewhere/a.rs", "", &[1]);
    check(layers, "src/net/a.rs", "macro_rules! m { () => { $crate::proxy::f() } }", &[1]);
}

#[test]
fn unsafe_is_found_outside_sys() {
    check(unsafe_outside_sys, "src/net/a.rs", "\nfn f() { unsafe { g() } }", &[2]);
    check(unsafe_outside_sys, "src/sys/a.rs", "fn f() { unsafe { g() } }", &[]);
    check(unsafe_outside_sys, "src/lib.rs", "#![deny(unsafe_code)] // unsafe", &[]);
}

#[test]
fn empty_names_are_found() {
    check(empty_names, "src/utils.rs", "", &[1]);
    check(empty_names, "tests/common/mod.rs", "", &[1]);
    check(empty_names, "src/net/a.rs", "\nmod helpers {}", &[2]);
    check(empty_names, "src/net/commonplace.rs", "mod helping;", &[]);
}

#[test]
fn lengths_are_found() {
    let body = |lines| format!("\nfn f() {{\n{}}}\n", "g();\n".repeat(lines));
    check(lengths, "src/net/a.rs", &body(68), &[]);
    check(lengths, "src/net/a.rs", &body(69), &[2]);
    check(lengths, "src/net/a.rs", &"//\n".repeat(500), &[]);
    check(lengths, "src/net/a.rs", &"//\n".repeat(501), &[1]);
    let array = body(69).replace("()", "(a: [u8; 4])");
    check(lengths, "src/net/a.rs", &array, &[2]);
    check(lengths, "src/net/a.rs", "trait A { fn f(); }\nfn g(h: fn(u8)) {}", &[]);
}

#[test]
fn loose_ends_are_found() {
    check(loose_ends, "src/net/a.rs", "// TODO: later\n// FIXME(me)", &[1, 2]);
    check(loose_ends, "tests/a.rs", "// TODO(#12): later\nlet a = \"TODO\";", &[]);
    check(loose_ends, "src/net/a.rs", "fn f() {} // XXX # here\n// TODOS", &[1]);
}

#[test]
fn clocks_and_runtimes_are_found_in_layer_0() {
    check(impure_layer_0, "src/health/a.rs", "\nlet a = Instant::now();", &[2]);
    check(impure_layer_0, "src/limits.rs", "use tokio::time;", &[1]);
    check(impure_layer_0, "src/balance/a.rs", "tracing::info!(x);", &[1]);
    check(impure_layer_0, "src/balance/a.rs", "let r = fastrand::u32(..);", &[1]);
    check(impure_layer_0, "src/balance/a.rs", "rng: &mut fastrand::Rng, // tokio", &[]);
    let tests = "#[cfg(test)]\nmod tests { fn f() { Instant::now(); } }";
    check(impure_layer_0, "src/health/a.rs", tests, &[]);
    check(impure_layer_0, "src/net/a.rs", "let a = Instant::now(); use tokio::time;", &[]);
}

#[test]
fn printing_is_found_outside_cli() {
    check(printing, "src/net/a.rs", "fn f() { println!(); dbg!(1); }", &[1, 1]);
    check(printing, "src/cli/a.rs", "fn f() { println!() }", &[]);
    check(printing, "src/net/a.rs", "#[cfg(test)]\nmod tests { fn f() { eprintln!() } }", &[]);
    check(printing, "src/net/a.rs", "self.print(x)", &[]);
}

#[test]
fn crates_are_found_outside_their_modules() {
    check(crates, "src/net/a.rs", "use metrics::counter;", &[1]);
    check(crates, "src/state/a.rs", "let a = serde_yaml::from_str(b);", &[1]);
    check(crates, "src/config/a.rs", "use serde_yaml::Value;", &[]);
    check(crates, "src/cli/a.rs", "crate::observe::metrics::f(); metrics.len();", &[]);
    check(crates, "src/balance/mod.rs", "mod ring;\nlet a = ring::f();", &[]);
    check(crates, "src/control/a.rs", "use rustls::crypto::{a, ring};\nlet b = ring::f();", &[]);
    check(crates, "src/control/a.rs", "use ring::a;\nlet a = ring::f();\nc::ring::d();", &[1, 2]);
}

#[test]
fn ignored_tests_are_found() {
    check(ignored_tests, "tests/a.rs", "#[test]\n#[ignore = \"slow\"]\nfn f() {}", &[2]);
    check(ignored_tests, "src/net/a.rs", "// #[ignore]", &[]);
}

#[test]
fn unwraps_are_found_outside_tests() {
    check(unwraps, "src/net/a.rs", "fn f() {\n  g().unwrap();\n}", &[2]);
    check(unwraps, "src/net/a.rs", "a.unwrap_or(b); c.expect(\"d\"); // .unwrap()", &[]);
    let tests = "#[cfg(test)]\nmod tests {\n fn f() { g().unwrap() }\n}\n";
    check(unwraps, "src/net/a.rs", &format!("{tests}fn h() {{ i().unwrap() }}"), &[5]);
    check(unwraps, "src/net/tests.rs", "g().unwrap()", &[]);
}
