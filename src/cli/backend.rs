//! `pointsman drain`, `ready`, `maintenance` and `weight`: what the operator wants of a backend.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::args::{Admin, Drain, SetAdmin, SetWeight};
use super::client::{Client, encode};
use super::{FAILED, complain};
use crate::config::Short;
use crate::limits::{ADMIN_RELOAD, WEIGHT_MAX};
use crate::observe::status::BackendStatus;
use crate::state::AdminState;

/// How often a backend that is being drained is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// `POOL/BACKEND`, the backend by its name or address. Names of pools have no `/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendName {
    pool: String,
    backend: String,
}

impl FromStr for BackendName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            Some((pool, backend)) if !pool.is_empty() && !backend.is_empty() => {
                Ok(BackendName { pool: pool.to_owned(), backend: backend.to_owned() })
            }
            _ => Err("write it like POOL/BACKEND, such as www/b1 or www/10.0.0.1:443"),
        }
    }
}

impl fmt::Display for BackendName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.pool, self.backend)
    }
}

impl BackendName {
    fn path(&self) -> String {
        format!("/api/v1/pools/{}/backends/{}", encode(&self.pool), encode(&self.backend))
    }
}

/// A weight, or the configuration's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewWeight {
    Given(u16),
    Configured,
}

impl FromStr for NewWeight {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "configured" {
            return Ok(NewWeight::Configured);
        }
        let weight = text.parse().ok().filter(|weight| *weight <= WEIGHT_MAX);
        let expected = || format!("a whole number from 0 to {WEIGHT_MAX}, or `configured`");
        weight.map(NewWeight::Given).ok_or_else(expected)
    }
}

pub fn drain(args: &Drain) -> anyhow::Result<ExitCode> {
    let backend = change(&args.admin, &args.backend, json!({ "admin": "drain" }))?;
    let Some(wait) = args.wait else { return said(&args.backend, &backend) };
    let client = Client::new(&args.admin)?;
    let deadline = Instant::now() + wait;
    let mut backend = backend;
    while backend.active > 0 {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let remain = sessions(backend.active);
            complain(&format!("pointsman: {}: {remain} left after {}", args.backend, Short(wait)));
            return Ok(ExitCode::from(FAILED));
        }
        std::thread::park_timeout(LOOK.min(left));
        backend = client.get(&args.backend.path())?.success()?.json()?;
        if backend.admin == AdminState::Ready.name() {
            complain(&format!("pointsman: {}: somebody has made it ready again", args.backend));
            return Ok(ExitCode::from(FAILED));
        }
    }
    said(&args.backend, &backend)
}

pub fn set_admin(args: &SetAdmin, admin: AdminState) -> anyhow::Result<ExitCode> {
    let backend = change(&args.admin, &args.backend, json!({ "admin": admin.name() }))?;
    said(&args.backend, &backend)
}

pub fn set_weight(args: &SetWeight) -> anyhow::Result<ExitCode> {
    let weight = match args.weight {
        NewWeight::Given(weight) => Some(weight),
        NewWeight::Configured => None,
    };
    let backend = change(&args.admin, &args.backend, json!({ "weight": weight }))?;
    said(&args.backend, &backend)
}

fn change(admin: &Admin, name: &BackendName, body: Value) -> anyhow::Result<BackendStatus> {
    let client = Client::new(admin)?;
    client.post(&name.path(), body.to_string(), ADMIN_RELOAD)?.success()?.json()
}

fn said(name: &BackendName, backend: &BackendStatus) -> anyhow::Result<ExitCode> {
    let BackendStatus { admin, state, weight, configured_weight, .. } = backend;
    let weight = if weight == configured_weight {
        format!("weight {weight}")
    } else {
        format!("weight {weight} (configured {configured_weight})")
    };
    let sessions = sessions(backend.active);
    writeln!(io::stdout(), "{name}: {admin}, {state}, {weight}, {sessions}")?;
    Ok(ExitCode::SUCCESS)
}

fn sessions(count: u32) -> String {
    match count {
        0 => "no sessions".to_owned(),
        1 => "1 session".to_owned(),
        _ => format!("{count} sessions"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (text, path) in [
            ("www/b1", "www/backends/b1"),
            ("www/10.0.0.1:80", "www/backends/10.0.0.1%3A80"),
            ("www/[::1]:80", "www/backends/%5B%3A%3A1%5D%3A80"),
            ("www/unix:/run/a.sock", "www/backends/unix%3A%2Frun%2Fa.sock"),
            ("a b?/é#", "a%20b%3F/backends/%C3%A9%23"),
        ] {
            let name: BackendName = text.parse().unwrap();
            assert_eq!(name.to_string(), text);
            assert_eq!(name.path(), format!("/api/v1/pools/{path}"));
        }
        for text in ["", "www", "/b1", "www/"] {
            assert!(text.parse::<BackendName>().is_err(), "{text}");
        }
    }

    #[test]
    fn weights() {
        assert_eq!("0".parse(), Ok(NewWeight::Given(0)));
        assert_eq!("256".parse(), Ok(NewWeight::Given(256)));
        assert_eq!("configured".parse(), Ok(NewWeight::Configured));
        for text in ["", "257", "-1", "1.5", "off"] {
            assert!(text.parse::<NewWeight>().is_err(), "{text}");
        }
    }
}
