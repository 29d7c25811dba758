//! What holds between the parts: files in `conf/`, flags, `effective`, size.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use super::document::{Kind, Node};
use super::report::Report;
use super::{
    Config, Secrets, backend, check_text, compile, connect, effective, effective_yaml, from_flags,
    health, listener, outlier, parse, pool, quic_lb, route, summary, udp,
};

const MINIMAL: &str = include_str!("../../conf/minimal.yaml");
const SNI: &str = include_str!("../../conf/sni.yaml");
const UDP: &str = include_str!("../../conf/udp.yaml");
const QUIC: &str = include_str!("../../conf/quic.yaml");
const CHECKS: &str = include_str!("../../conf/checks.yaml");
const FULL: &str = include_str!("../../conf/full.yaml");

/// What `conf/full.yaml` says that is no default.
const FULL_WITHOUT_DEFAULTS: &str = r#"
admin: { bind: 127.0.0.1:9901 }
access_log: { path: stdout }
listeners:
  edge: { bind: "[::]:8443", pool: app }
  tls:
    bind: "[::]:443"
    routes:
      - sni: [api.example.com, "*.api.example.com"]
        alpn: [h2, http/1.1]
        source: [10.0.0.0/8, "2001:db8::/32"]
        pool: app
      - { sni: www.example.com, split: [{ pool: app, weight: 95 }, { pool: cache, weight: 5 }] }
      - { sni: old.example.com, action: reject }
      - { pool: app }
  cache: { bind: [127.0.0.1:8080, 127.0.0.1:8081], pool: cache }
  quic: { bind: "[::]:443", protocol: udp, pool: quic, limits: { per_source: { rate: 100/s } } }
pools:
  app:
    backends: [127.0.0.1:9001, { name: b2, address: 127.0.0.1:9002 }]
    health: { send: { hex: "00 01" } }
  cache:
    balance: maglev
    backends: [127.0.0.1:9003, unix:/run/cache.sock]
    health: { type: http, host: cache.example, tls: true, sni: cache.example, verify: on }
  quic:
    backends:
      - { address: 10.0.0.1:443, server_id: 01 }
      - { address: 10.0.0.2:443, server_id: 02 }
    quic_lb: { config: 0 }
"#;

fn read(text: &str) -> Config {
    parse(text, "test").unwrap_or_else(|errors| panic!("{errors}"))
}

#[test]
fn full_shows_the_defaults() {
    assert_eq!(read(FULL), read(FULL_WITHOUT_DEFAULTS));
}

#[test]
fn full_shows_every_key() {
    let root = super::document::read(FULL, &mut Report::default()).unwrap();
    let mut shown = BTreeSet::new();
    keys("", &root, &mut shown);
    let tables = [
        ("", compile::TOP),
        (".admin", compile::ADMIN),
        (".log", compile::LOG),
        (".access_log", compile::ACCESS_LOG),
        (".shutdown", compile::SHUTDOWN),
        (".listeners.edge", listener::LISTENER),
        (".listeners.edge.timeouts", listener::TIMEOUTS),
        (".listeners.edge.preread", listener::PREREAD),
        (".listeners.edge.limits", udp::LIMITS),
        (".listeners.edge.limits.per_source", udp::PER_SOURCE),
        (".listeners.edge.udp", udp::UDP),
        (".listeners.tls.routes[]", route::ROUTE),
        (".listeners.tls.routes[].split[]", route::SPLIT),
        (".pools.app", pool::POOL),
        (".pools.app.backends[]", backend::BACKEND),
        (".pools.app.health", health::HEALTH),
        (".pools.app.health.send", health::BYTES),
        (".pools.app.connect", connect::CONNECT),
        (".pools.app.outlier", outlier::OUTLIER),
        (".pools.app.queue", pool::QUEUE),
        (".pools.app.quic_lb", quic_lb::QUIC_LB),
        (".pools.cache.balance", pool::BALANCE),
    ];
    for (table, keys) in tables {
        for key in keys {
            let path = format!("{table}.{key}");
            // No listener has both `pool` and `routes`, no check is of every type, and so on.
            let elsewhere = |listener, pool| path.replace("edge", listener).replace("app", pool);
            let places =
                [elsewhere("edge", "app"), elsewhere("tls", "cache"), elsewhere("quic", "quic")];
            let found = places.iter().any(|path| shown.contains(path));
            assert!(found, "{path} is not in full.yaml");
        }
    }
    // The effective configuration knows the same keys.
    let written = serde_json::to_string(&effective(&read(FULL), Secrets::Shown)).unwrap();
    let root = super::document::read(&written, &mut Report::default()).unwrap();
    let mut effective = BTreeSet::new();
    keys("", &root, &mut effective);
    let missing: Vec<_> = shown.difference(&effective).collect();
    assert!(missing.is_empty(), "not in the effective configuration: {missing:?}");
}

/// Every path of a key below `node`, without the numbers of list items.
fn keys(path: &str, node: &Node, paths: &mut BTreeSet<String>) {
    match &node.kind {
        Kind::Map(entries) => {
            for entry in entries {
                let path = format!("{path}.{}", entry.key);
                keys(&path, &entry.value, paths);
                paths.insert(path);
            }
        }
        Kind::List(items) => {
            items.iter().for_each(|item| keys(&format!("{path}[]"), item, paths));
        }
        Kind::Scalar { .. } | Kind::Refused => {}
    }
}

#[test]
fn shipped_files_have_no_warnings() {
    for text in [MINIMAL, CHECKS, FULL, SNI, UDP, QUIC] {
        assert_eq!(check_text(text, "shipped").unwrap().warnings, []);
    }
}

#[test]
fn effective_hides_nothing_but_secrets() {
    let config = read(&FULL.replace("token_file: off", "token_file: /etc/pointsman/token"));
    let value = serde_json::to_value(effective(&config, Secrets::Shown)).unwrap();
    for (pointer, expected) in [
        ("/workers", "\"auto\""),
        ("/admin/token_file", "\"/etc/pointsman/token\""),
        ("/listeners/edge/bind/0", "\"[::]:8443\""),
        ("/listeners/edge/timeouts/lifetime", "\"off\""),
        ("/pools/app/balance", "{\"policy\":\"least_conn\"}"),
        ("/pools/app/backends/0/name", "\"127.0.0.1:9001\""),
        ("/pools/app/health/interval", "\"2s\""),
        ("/pools/app/panic_threshold", "0"),
        ("/pools/cache/balance/table_size", "65537"),
    ] {
        let found = value.pointer(pointer).map(ToString::to_string);
        assert_eq!(found.as_deref(), Some(expected), "{pointer}");
    }
}

#[test]
fn effective_yaml_reads_back() {
    // A key that YAML would take for a number.
    let key = "00112233445566778899001122334455";
    let keyed = FULL.replace("key: off ", &format!("key: {key} "));
    assert!(keyed.contains(key));
    for text in [FULL, &keyed, UDP, QUIC] {
        let config = read(text);
        let written = effective_yaml(&config, Secrets::Shown).unwrap();
        assert_eq!(read(&written), config, "{written}");
        // What is written out has no effect that the file had not.
        assert_eq!(check_text(&written, "effective").unwrap().warnings, [], "{written}");
    }
}

#[test]
fn a_key_is_shown_to_nobody_else() {
    let key = "8f95f09245765f80256934e50c66207f";
    let config = read(&QUIC.replace("key: off", &format!("key: {key}")));
    let pool = config.pools.iter().find(|pool| &*pool.name == "shop-h3").unwrap();
    let quic_lb = pool.quic_lb.as_ref().unwrap();
    let secret = quic_lb.key.as_ref().unwrap();
    assert_eq!((quic_lb::hex(secret.bytes()).as_str(), quic_lb.server_id_length), (key, 1));

    let hidden = effective_yaml(&config, Secrets::Hidden).unwrap();
    assert!(hidden.contains("key: hidden") && !hidden.contains(key), "{hidden}");
    let error = parse(&hidden, "hidden").unwrap_err().to_string();
    assert!(error.contains("quic_lb.key: not a key"), "{error}");
    let shown = effective_yaml(&config, Secrets::Shown).unwrap();
    assert!(shown.contains(key), "{shown}");

    let debug = format!("{config:?} {config:#?}");
    let byte = u8::from_str_radix(&key[..2], 16).unwrap();
    assert!(debug.contains("key: Some(Secret)"), "{debug}");
    assert!(!debug.contains(key) && !debug.contains(&format!("{byte}, ")), "{debug}");

    // Nor where it is in the wrong place, or is none.
    let (head, rest) = QUIC.split_once("    quic_lb:").unwrap();
    let (_, tail) = rest.split_once("\n\n").unwrap();
    for wrong in [
        format!("{{ config: 0, key: {key}f }}"),
        format!("{{ config: 0, key: [{key}] }}"),
        format!("{{ config: 0, key: {{ hex: {key} }} }}"),
        key.to_owned(),
        format!("[{key}]"),
    ] {
        let text = format!("{head}    quic_lb: {wrong}\n{tail}");
        let errors = parse(&text, "wrong").unwrap_err().to_string();
        assert!(errors.contains(".quic_lb"), "{errors}");
        assert!(!errors.contains(key), "{wrong}: {errors}");
    }
}

#[test]
fn flags() {
    let list = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
    let config = from_flags(
        &list(&["127.0.0.1:8080", "[::]:8081"]),
        &list(&["10.0.0.1:80", "unix:/run/a.sock"]),
        Some("p2c"),
        Some("127.0.0.1:9901"),
    );
    let same = "admin: { bind: 127.0.0.1:9901 }
listeners: { listen: { bind: [127.0.0.1:8080, '[::]:8081'], pool: pool } }
pools: { pool: { balance: p2c, backends: [10.0.0.1:80, unix:/run/a.sock] } }";
    assert_eq!(config.unwrap(), read(same));

    let errors = from_flags(
        &list(&["8080", "127.0.0.1:1", "127.0.0.1:1", "127.0.0.1:9901"]),
        &list(&["example.com:80", "10.0.0.1:0", "10.0.0.1:80", "10.0.0.1:80"]),
        Some("round-robin"),
        Some("127.0.0.1:9901"),
    );
    let expected = "\
--listen: `8080` is a port without an address; write 0.0.0.0:8080 or \"[::]:8080\"
--listen: `127.0.0.1:1` is bound twice, here and by --listen; give each its own address
--listen: `127.0.0.1:9901` is bound twice, here and by --admin; give each its own address
--balance: `round-robin` is not a balancing policy; did you mean `round_robin`?
--backend: `example.com:80` is a host name; names are not looked up, write the IP address and port
--backend: `10.0.0.1:0` has port 0, which nobody listens on; give the backend's port
--backend: `10.0.0.1:80` is in the pool twice, here and by --backend; remove one, or use `weight`";
    assert_eq!(errors.unwrap_err().to_string(), expected);

    let expected = "\
--listen: is missing; give at least one, like `--listen 127.0.0.1:8080`
--backend: is missing; give at least one, like `--backend 127.0.0.1:9001`";
    assert_eq!(from_flags(&[], &[], None, None).unwrap_err().to_string(), expected);
}

#[test]
fn summary_is_a_table() {
    let expected = "\
workers auto, max_connections auto, admin 127.0.0.1:9901

LISTENER  BIND                            PROTOCOL           ROUTE                LEADS TO
edge      [::]:8443                       tcp                everything else      app
tls       [::]:443                        tcp                sni api.example.com  app
                                                             sni www.example.com  split: app 95, cache 5
                                                             sni old.example.com  reject
                                                             everything else      app
cache     127.0.0.1:8080, 127.0.0.1:8081  tcp                everything else      cache
quic      [::]:443                        udp, 100000 flows  everything else      quic

POOL   BALANCE               BACKENDS  WEIGHT  HEALTH         PANIC
app    least_conn            2         2       tcp every 2s   0
cache  maglev of five_tuple  2         2       http every 2s  0
quic   least_conn            2         2       off            0
";
    // One condition, so that a line fits here.
    let first = FULL.find("        alpn:").expect("a route with every condition");
    let last = first + FULL[first..].find("        pool:").expect("where it leads");
    let mut full = FULL.to_owned();
    full.replace_range(first..last, "");
    let full = full.replace("[api.example.com, \"*.api.example.com\"]", "api.example.com");
    assert_eq!(summary(&read(&full)), expected);
}

/// Quadratic work would take minutes here: 10,000 squared comparisons of names.
#[test]
fn ten_thousand_of_everything() {
    let mut text = "listeners:\n".to_owned();
    for i in 0..10_000 {
        let _ = writeln!(text, "  l{i}: {{ bind: 127.{}.{}.1:80, pool: p{i} }}", i / 256, i % 256);
    }
    text.push_str("pools:\n");
    for i in 0..10_000 {
        let _ = writeln!(text, "  p{i}: {{ backends: [10.0.0.1:80] }}");
    }
    text.push_str("  big:\n    backends:\n");
    for i in 0..10_000 {
        let _ =
            writeln!(text, "      - {{ name: b{i}, address: 10.1.{}.{}:80 }}", i / 256, i % 256);
    }
    let start = Instant::now();
    let config = read(&text);
    assert_eq!((config.listeners.len(), config.pools.len()), (10_000, 10_001));
    // The same with every reference wrong.
    let errors = parse(&text.replace("pool: p", "pool: q"), "test").unwrap_err();
    assert_eq!((errors.list.len(), errors.more), (100, 9_900));
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());

    let too_many = text.clone() + "      - 10.2.0.1:80\n";
    let error = parse(&too_many, "test").unwrap_err().to_string();
    assert!(error.ends_with("10001 backends; a pool has at most 10000"), "{error}");
}
