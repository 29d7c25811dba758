//! `GET /api/v1/sessions`: asking the workers, and the shape of the answer, which the command line
//! reads too.

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::limits::{ADMIN_QUERY, SESSIONS_LISTED, SESSIONS_LISTED_MAX};
use crate::state::{Process, Query, SessionReport, SessionReports, Stage};

/// The whole answer.
#[derive(Debug, Serialize, Deserialize)]
pub struct Sessions {
    /// How many there are.
    pub total: usize,
    /// The largest, by the bytes of both directions, largest first.
    pub sessions: Vec<SessionStatus>,
}

/// A session.
#[derive(Debug, Serialize, Deserialize)]
pub struct SessionStatus {
    /// 16 hex digits, as in the access log.
    pub id: String,
    /// `tcp`, or `udp`: then it is a flow.
    pub protocol: String,
    /// The listener it came by.
    pub listener: String,
    /// Address and port; `None` on a unix socket.
    pub client: Option<String>,
    /// The host name in its hello, where one was read.
    pub sni: Option<String>,
    /// The pool it was routed to.
    pub pool: Option<String>,
    /// The backend it is connected to.
    pub backend: Option<String>,
    /// `preread`, `connecting`, `relaying` or `closing`.
    pub state: String,
    /// Since it was accepted.
    pub age_seconds: f64,
    /// Bytes passed on to the backend.
    pub bytes_in: u64,
    /// Bytes passed on to the client.
    pub bytes_out: u64,
}

/// A worker has too much to do.
#[derive(Debug, thiserror::Error)]
#[error("a worker does not answer; try again")]
pub(super) struct Unanswered;

/// How many sessions the query of a request asks for.
pub(super) fn limit(query: Option<&str>) -> Result<usize, String> {
    let mut limit = SESSIONS_LISTED;
    for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let Some(number) = pair.strip_prefix("limit=") else {
            return Err("the query has nothing but `limit`".to_owned());
        };
        let possible = 1..=SESSIONS_LISTED_MAX;
        let number = number.parse().ok().filter(|number| possible.contains(number));
        limit = number
            .ok_or_else(|| format!("`limit` is a whole number from 1 to {SESSIONS_LISTED_MAX}"))?;
    }
    Ok(limit)
}

/// The id in a path; `None` if there is no such id.
pub(super) fn parse_id(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    u64::from_str_radix(text, 16).ok().filter(|_| digits)
}

/// The largest sessions of the process.
pub(super) async fn list(process: &Process, limit: usize) -> Result<Sessions, Unanswered> {
    let answers = ask(process, |answer| Query::Largest { limit, answer }).await?;
    let total = answers.iter().map(|answer| answer.total).sum();
    let mut reports: Vec<SessionReport> =
        answers.into_iter().flat_map(|SessionReports { largest, .. }| largest).collect();
    let size = |report: &SessionReport| report.bytes_in.saturating_add(report.bytes_out);
    reports.sort_by_key(|report| (std::cmp::Reverse(size(report)), report.id));
    reports.truncate(limit);
    Ok(Sessions { total, sessions: reports.iter().map(session).collect() })
}

/// Has a session end; false if there is none with this id.
pub(super) async fn end(process: &Process, id: u64) -> Result<bool, Unanswered> {
    Ok(ask(process, |answer| Query::End { id, answer }).await?.contains(&true))
}

/// Asks every worker, which do not wait for each other. One that has ended has no sessions.
async fn ask<T>(
    process: &Process,
    query: impl Fn(oneshot::Sender<T>) -> Query,
) -> Result<Vec<T>, Unanswered> {
    let deadline = Instant::now() + ADMIN_QUERY;
    let mut received = Vec::new();
    for worker in process.workers.iter() {
        let (sender, receiver) = oneshot::channel();
        if !worker.queries.ask(query(sender)) {
            return Err(Unanswered);
        }
        received.push(receiver);
    }
    let mut answers = Vec::new();
    for receiver in received {
        answers.extend(timeout_at(deadline, receiver).await.map_err(|_| Unanswered)?);
    }
    Ok(answers)
}

fn session(report: &SessionReport) -> SessionStatus {
    let (pool, backend, state) = match &report.stage {
        Stage::Preread => (None, None, "preread"),
        Stage::Connecting(pool) => (Some(&pool.name), None, "connecting"),
        Stage::Relaying(backend) => (Some(&backend.pool), Some(backend.name()), "relaying"),
    };
    SessionStatus {
        id: format!("{:016x}", report.id),
        protocol: report.protocol.name().to_owned(),
        listener: report.listener.name.to_string(),
        client: report.client.map(|client| client.to_string()),
        sni: report.sni.as_deref().map(str::to_owned),
        pool: pool.map(|name| name.to_string()),
        backend: backend.map(|name| name.to_string()),
        state: if report.ended { "closing" } else { state }.to_owned(),
        age_seconds: report.age.as_millis() as f64 / 1000.0,
        bytes_in: report.bytes_in,
        bytes_out: report.bytes_out,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries() {
        for (query, expected) in [
            (None, Some(SESSIONS_LISTED)),
            (Some(""), Some(SESSIONS_LISTED)),
            (Some("limit=1"), Some(1)),
            (Some("limit=10000"), Some(10_000)),
            (Some("limit=0"), None),
            (Some("limit=10001"), None),
            (Some("limit=x"), None),
            (Some("limit="), None),
            (Some("limits=1"), None),
            (Some("limit=1&pool=www"), None),
        ] {
            assert_eq!(limit(query).ok(), expected, "{query:?}");
        }
    }

    #[test]
    fn ids() {
        for (text, expected) in [
            ("68d0a1b200000001", Some(0x68d0_a1b2_0000_0001)),
            ("0", Some(0)),
            ("F", Some(15)),
            ("", None),
            ("+1", None),
            ("0x1", None),
            ("168d0a1b200000001", None),
            ("no", None),
        ] {
            assert_eq!(parse_id(text), expected, "{text}");
        }
    }
}
