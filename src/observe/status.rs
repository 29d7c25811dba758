//! `GET /api/v1/status`: the shape of the answer, which the command line reads too.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::SystemTime;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use super::access_format::timestamp;
use crate::snapshot::{self, Snapshot};
use crate::state::{CheckReport, Process};

/// The whole answer.
#[derive(Debug, Serialize, Deserialize)]
pub struct Status {
    /// Of the program.
    pub version: String,
    /// Since the start of the process.
    pub uptime_seconds: u64,
    /// Listeners bound, first round of checks over, not leaving.
    pub ready: bool,
    /// Of the configuration in force.
    pub generation: u64,
    /// By name, in the order of the file.
    pub listeners: Named<ListenerStatus>,
    /// By name, in the order of the file.
    pub pools: Named<PoolStatus>,
}

/// A listener.
#[derive(Debug, Serialize, Deserialize)]
pub struct ListenerStatus {
    /// `tcp` or `udp`.
    pub protocol: String,
    /// The addresses as bound.
    pub bind: Vec<String>,
    /// The pools that its routes lead to, in order, each once.
    pub pools: Vec<Arc<str>>,
    /// Open connections.
    pub active: u64,
    /// Accepted connections.
    pub total: u64,
    /// Bytes passed on from clients.
    pub bytes_in: u64,
    /// Bytes passed on to clients.
    pub bytes_out: u64,
}

/// A pool.
#[derive(Debug, Serialize, Deserialize)]
pub struct PoolStatus {
    /// The name of its policy.
    pub policy: String,
    /// 12 hex digits, equal on every instance that hashes alike; `None` where nothing is hashed.
    #[serde(default)]
    pub digest: Option<String>,
    /// The state of backends is ignored.
    pub panic: bool,
    /// By name, ordered by address.
    pub backends: Named<BackendStatus>,
}

/// A backend.
#[derive(Debug, Serialize, Deserialize)]
pub struct BackendStatus {
    /// In canonical form.
    pub address: String,
    /// `unknown`, `up`, `down` or `ejected`.
    pub state: String,
    /// `ready`, `drain` or `maintenance`.
    pub admin: String,
    /// The one in force.
    pub weight: u16,
    /// The one that the configuration gives it.
    pub configured_weight: u16,
    /// Sessions and attempts at the moment.
    pub active: u32,
    /// Established connections.
    pub total: u64,
    /// Failed attempts to connect.
    pub failures: u64,
    /// Times that real connections got it ejected.
    #[serde(default)]
    pub ejections: u64,
    /// `None` before the first one, or if there are none.
    pub last_check: Option<CheckStatus>,
}

/// The latest check of a backend.
#[derive(Debug, Serialize, Deserialize)]
pub struct CheckStatus {
    /// It passed.
    pub ok: bool,
    /// Why not.
    pub reason: Option<String>,
    /// The HTTP status or the TLS alert that is the reason.
    #[serde(default)]
    pub code: Option<u16>,
    /// How long it took.
    pub ms: f64,
    /// When it ended (RFC 3339), by the clock as it is now.
    #[serde(default)]
    pub time: String,
    /// How long ago that was.
    pub age_seconds: f64,
}

/// Reads everything now.
pub fn status(process: &Process, snapshot: &Snapshot) -> Status {
    let listeners = snapshot.listeners.iter().map(|e| (e.listener.name.clone(), entrance(e)));
    let pools = snapshot.pools.iter().map(|p| (p.name.clone(), pool(p)));
    Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime_seconds: process.started.elapsed().as_secs(),
        ready: process.ready(),
        generation: snapshot.generation,
        listeners: Named(listeners.collect()),
        pools: Named(pools.collect()),
    }
}

fn entrance(entrance: &snapshot::Entrance) -> ListenerStatus {
    let listener = &entrance.listener;
    let counts = listener.state.counts();
    ListenerStatus {
        protocol: listener.protocol.name().to_owned(),
        bind: entrance.sockets.iter().map(|socket| socket.local.to_string()).collect(),
        pools: listener.pools().iter().map(|pool| pool.name.clone()).collect(),
        active: counts.active,
        total: counts.opened,
        bytes_in: counts.bytes_in,
        bytes_out: counts.bytes_out,
    }
}

fn pool(pool: &snapshot::Pool) -> PoolStatus {
    let backends = pool.backends.iter().map(|b| (b.name.clone(), backend(b)));
    PoolStatus {
        policy: pool.spec.policy.name().to_owned(),
        digest: pool.digest.map(|digest| format!("{digest:012x}")),
        panic: pool.state.panic(),
        backends: Named(backends.collect()),
    }
}

/// Reads one backend now.
pub(super) fn backend(backend: &snapshot::Backend) -> BackendStatus {
    let counts = backend.state.counts();
    BackendStatus {
        address: backend.state.address.to_string(),
        state: backend.state.state().name().to_owned(),
        admin: backend.state.admin().name().to_owned(),
        weight: backend.weight,
        configured_weight: backend.configured_weight,
        active: counts.active,
        total: counts.connections,
        failures: counts.failures.iter().sum(),
        ejections: counts.ejections,
        last_check: backend.state.last_check().map(|report| check(&report)),
    }
}

fn check(report: &CheckReport) -> CheckStatus {
    let age = report.ended.elapsed();
    let failure = report.result.err();
    CheckStatus {
        ok: failure.is_none(),
        reason: failure.map(|failure| failure.name().to_owned()),
        code: failure.and_then(|failure| failure.code()),
        ms: report.took.as_micros() as f64 / 1000.0,
        time: SystemTime::now().checked_sub(age).map(timestamp).unwrap_or_default(),
        age_seconds: age.as_millis() as f64 / 1000.0,
    }
}

/// A JSON object that keeps its order.
#[derive(Debug)]
pub struct Named<T>(pub Vec<(Arc<str>, T)>);

impl<T: Serialize> Serialize for Named<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
            type Value = Named<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Named<T>, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Named(entries))
            }
        }
        deserializer.deserialize_map(Entries(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_survives_the_wire() {
        let named = Named(vec![("z".into(), 1), ("a".into(), 2), ("m\"".into(), 3)]);
        let text = serde_json::to_string(&named).unwrap();
        assert_eq!(text, r#"{"z":1,"a":2,"m\"":3}"#);
        assert_eq!(serde_json::from_str::<Named<i32>>(&text).unwrap().0, named.0);
    }
}
