//! `pointsman sessions`: who is connected, and an end for one of them.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;

use super::args::{EndSession, ListSessions, Sessions as Args, SessionsCommand};
use super::client::{Client, encode};
use super::status::{age, size};
use super::table::{Align, Table, fit};
use crate::observe::sessions::{SessionStatus, Sessions};

/// Widest name shown; `--json` has them whole.
const NAME: usize = 24;
/// Any address of IPv4 fits.
const ADDRESS: usize = 21;

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Some(SessionsCommand::End(end_one)) => end(end_one),
        None => list(&args.list),
    }
}

fn list(args: &ListSessions) -> anyhow::Result<ExitCode> {
    let path = format!("/api/v1/sessions?limit={}", args.limit);
    let reply = Client::new(&args.admin)?.get(&path)?.success()?;
    reply.print(args.json, render)?;
    Ok(ExitCode::SUCCESS)
}

fn end(args: &EndSession) -> anyhow::Result<ExitCode> {
    let path = format!("/api/v1/sessions/{}", encode(&args.id));
    Client::new(&args.admin)?.delete(&path)?.success()?;
    writeln!(io::stdout(), "{}: told to end", args.id)?;
    Ok(ExitCode::SUCCESS)
}

fn render(sessions: &Sessions) -> String {
    let mut table = Table::new(&[
        ("ID", Align::Left),
        ("CLIENT", Align::Left),
        ("LISTENER", Align::Left),
        ("POOL/BACKEND", Align::Left),
        ("STATE", Align::Left),
        ("AGE", Align::Right),
        ("IN", Align::Right),
        ("OUT", Align::Right),
        ("SNI", Align::Left),
    ]);
    for session in &sessions.sessions {
        row(&mut table, session);
    }
    let mut out = table.render();
    let left_out = sessions.total.saturating_sub(sessions.sessions.len());
    if left_out > 0 {
        let _ = writeln!(out, "and {left_out} smaller ones; --limit shows more");
    }
    out
}

fn row(table: &mut Table, session: &SessionStatus) {
    let pool = session.pool.as_deref().unwrap_or_default();
    let place = match &session.backend {
        Some(backend) => format!("{pool}/{backend}"),
        None => pool.to_owned(),
    };
    table.row([
        session.id.clone(),
        fit(session.client.as_deref().unwrap_or("unix"), ADDRESS),
        fit(&session.listener, NAME),
        fit(&place, NAME),
        session.state.clone(),
        age(session.age_seconds),
        size(session.bytes_in),
        size(session.bytes_out),
        fit(session.sni.as_deref().unwrap_or_default(), NAME),
    ]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_reads_well() {
        let text = r#"{"total": 12, "sessions": [
            {"id": "68d0a1b200000001", "protocol": "tcp", "listener": "edge", "client": "203.0.113.9:51000",
             "sni": "www.example.com", "pool": "www", "backend": "b1", "state": "relaying",
             "age_seconds": 75.2, "bytes_in": 1000, "bytes_out": 5000000},
            {"id": "68d0a1b200000002", "protocol": "tcp", "listener": "local", "client": null, "sni": null,
             "pool": null, "backend": null, "state": "preread", "age_seconds": 0.1,
             "bytes_in": 0, "bytes_out": 0}
        ]}"#;
        let expected = "\
ID                CLIENT             LISTENER  POOL/BACKEND  STATE       AGE       IN      OUT  SNI
68d0a1b200000001  203.0.113.9:51000  edge      www/b1        relaying  1m15s  1.0 KiB  4.8 MiB  www.example.com
68d0a1b200000002  unix               local                   preread      0s      0 B      0 B
and 10 smaller ones; --limit shows more
";
        assert_eq!(render(&serde_json::from_str(text).unwrap()), expected);
    }
}
