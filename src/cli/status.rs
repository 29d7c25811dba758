//! `pointsman status`: one look at the running process.

use std::fmt::Write as _;
use std::process::ExitCode;

use super::args::Status as Args;
use super::client::Client;
use super::table::{Align, Table, fit};
use crate::config::Protocol;
use crate::observe::status::{BackendStatus, CheckStatus, ListenerStatus, PoolStatus, Status};
use crate::state::AdminState;

/// Widest name and address shown; `--json` has them whole.
const NAME: usize = 18;
/// Any IPv4 address fits.
const ADDRESS: usize = 21;

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let reply = Client::new(&args.admin)?.get("/api/v1/status")?.success()?;
    reply.print(args.json, render)?;
    Ok(ExitCode::SUCCESS)
}

/// Fits 100 columns unless counts get very large.
fn render(status: &Status) -> String {
    let ready = if status.ready { "ready" } else { "NOT READY" };
    let (version, generation) = (fit(&status.version, NAME), status.generation);
    let up = age(status.uptime_seconds as f64);
    let mut out = format!("pointsman {version}, {ready}, up {up}, generation {generation}\n");
    let mut listeners = Table::new(&[
        ("LISTENER", Align::Left),
        ("BIND", Align::Left),
        ("POOL", Align::Left),
        ("ACTIVE", Align::Right),
        ("TOTAL", Align::Right),
        ("IN", Align::Right),
        ("OUT", Align::Right),
    ]);
    for (name, listener) in &status.listeners.0 {
        listener_rows(&mut listeners, name, listener);
    }
    let mut pools = Table::new(&[
        ("POOL/BACKEND", Align::Left),
        ("ADDRESS", Align::Left),
        ("STATE", Align::Left),
        ("WEIGHT", Align::Right),
        ("ACTIVE", Align::Right),
        ("TOTAL", Align::Right),
        ("FAILED", Align::Right),
        ("CHECK, AGE", Align::Left),
    ]);
    for (name, pool) in &status.pools.0 {
        pool_rows(&mut pools, name, pool);
    }
    let _ = write!(out, "\n{}\n{}", listeners.render(), pools.render());
    out
}

/// One line, and one more for each further address.
fn listener_rows(table: &mut Table, name: &str, listener: &ListenerStatus) {
    let after = if listener.protocol == Protocol::Udp.name() { "/udp" } else { "" };
    let mut binds = listener.bind.iter().map(|bind| format!("{bind}{after}"));
    table.row([
        fit(name, NAME),
        fit(&binds.next().unwrap_or_default(), ADDRESS),
        fit(&listener.pools.join(", "), NAME),
        listener.active.to_string(),
        listener.total.to_string(),
        size(listener.bytes_in),
        size(listener.bytes_out),
    ]);
    for bind in binds {
        table.row([String::new(), fit(&bind, ADDRESS)]);
    }
}

fn pool_rows(table: &mut Table, name: &str, pool: &PoolStatus) {
    let policy = if pool.panic { "panic" } else { "" };
    table.row([fit(name, NAME), fit(&pool.policy, ADDRESS), policy.to_owned()]);
    for (name, backend) in &pool.backends.0 {
        backend_row(table, name, backend);
    }
}

fn backend_row(table: &mut Table, name: &str, backend: &BackendStatus) {
    // Most backends have no name but their address: once is enough.
    let address = if *name == backend.address { "" } else { &backend.address };
    table.row([
        format!("  {}", fit(name, NAME - 2)),
        fit(address, ADDRESS),
        fit(standing(backend), NAME),
        backend.weight.to_string(),
        backend.active.to_string(),
        backend.total.to_string(),
        backend.failures.to_string(),
        backend.last_check.as_ref().map_or("never".to_owned(), checked),
    ]);
}

/// What the operator wants of it, where that is not the usual, else its state.
fn standing(backend: &BackendStatus) -> &str {
    if backend.admin == AdminState::Ready.name() { &backend.state } else { &backend.admin }
}

fn checked(check: &CheckStatus) -> String {
    let word = if check.ok { "ok" } else { check.reason.as_deref().unwrap_or("failed") };
    let code = check.code.map(|code| format!(" {code}")).unwrap_or_default();
    format!("{}{code} {}", fit(word, NAME), age(check.age_seconds))
}

/// In the two largest units.
pub fn age(seconds: f64) -> String {
    let seconds = seconds.max(0.0) as u64;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{}s", seconds % 60),
        (0, _, _) => format!("{hours}h{}m", minutes % 60),
        _ => format!("{days}d{}h", hours % 24),
    }
}

/// With three digits or so.
pub fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB", "TiB"] {
        if value < 1000.0 {
            let digits = usize::from(value < 100.0 && unit != "B");
            return format!("{value:.digits$} {unit}");
        }
        value /= 1024.0;
    }
    format!("{value:.0} PiB")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn table_reads_well() {
        let backend = |address: &str, state: &str, check: serde_json::Value| {
            let admin = if state == "drain" { "drain" } else { "ready" };
            let state = if state == "drain" { "up" } else { state };
            json!({
                "address": address, "state": state, "admin": admin, "weight": 1,
                "configured_weight": 1, "active": 2, "total": 34567,
                "failures": 9, "last_check": check, "a key from the future": true,
            })
        };
        let passed = json!({"ok": true, "reason": null, "ms": 0.4, "age_seconds": 1.9});
        let failed =
            json!({"ok": false, "reason": "status", "code": 503, "ms": 0.4, "age_seconds": 75});
        let status = json!({
            "version": "0.1.0", "uptime_seconds": 7384, "ready": true, "generation": 3,
            "listeners": {
                "edge": {
                    "protocol": "tcp", "bind": ["[::]:443", "127.0.0.1:8443"], "pools": ["www"], "active": 12,
                    "total": 3456789, "bytes_in": 999, "bytes_out": 5_000_000_000_u64,
                },
            },
            "pools": {
                "www": {
                    "policy": "least_conn", "panic": true, "backends": {
                        "b2": backend("10.0.0.12:443", "drain", passed),
                        "10.0.0.1:80": backend("10.0.0.1:80", "down", failed),
                        "a-name-that-is-quite-a-bit-too-long":
                            backend("[2001:db8:1111:2222:3333:4444:5555:6666]:443", "unknown",
                                    serde_json::Value::Null),
                    },
                },
            },
        });
        // Parsed from text: a `Value` would not keep the order, and the admin server sends text.
        let status: Status = serde_json::from_str(&status.to_string()).unwrap();
        let expected = "\
pointsman 0.1.0, ready, up 2h3m, generation 3

LISTENER  BIND            POOL  ACTIVE    TOTAL     IN      OUT
edge      [::]:443        www       12  3456789  999 B  4.7 GiB
          127.0.0.1:8443

POOL/BACKEND        ADDRESS                STATE    WEIGHT  ACTIVE  TOTAL  FAILED  CHECK, AGE
www                 least_conn             panic
  10.0.0.1:80                              down          1       2  34567       9  status 503 1m15s
  a-name-that-is-…  [2001:db8:1111:2222:…  unknown       1       2  34567       9  never
  b2                10.0.0.12:443          drain         1       2  34567       9  ok 1s
";
        assert_eq!(render(&status), expected);
        assert!(expected.lines().all(|line| line.chars().count() <= 100));
    }

    #[test]
    fn ages_and_sizes() {
        for (seconds, expected) in
            [(0.4, "0s"), (59.9, "59s"), (61.0, "1m1s"), (7380.0, "2h3m"), (266_400.0, "3d2h")]
        {
            assert_eq!(age(seconds), expected);
        }
        for (bytes, expected) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 KiB"),
            (102_400, "100 KiB"),
            (1 << 40, "1.0 TiB"),
            (u64::MAX, "16384 PiB"),
        ] {
            assert_eq!(size(bytes), expected);
        }
    }
}
