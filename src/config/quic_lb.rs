//! How the connection ids of QUIC name a backend (draft-ietf-quic-load-balancers, QUIC-LB).

use std::collections::HashMap;
use std::fmt;

use super::error::{Problem, Quoted};
use super::health::from_hex;
use super::report::Report;
use super::value::{Named, Value};
use super::{Backend, Listener, Pool, Protocol, defaults};
use crate::address::Address;
use crate::limits::SERVER_ID_AND_NONCE;

pub(super) const QUIC_LB: &[&str] = &["config", "key", "nonce_length"];

/// 7 says that a connection id names nobody.
const CONFIG_MAX: u64 = 6;
const NONCE_LENGTHS: std::ops::RangeInclusive<u64> = 4..=18;
const SERVER_ID_LENGTHS: std::ops::RangeInclusive<usize> = 1..=15;

/// What a pool's backends write into their connection ids, so that a flow is known again by them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuicLb {
    /// The first three bits of a connection id, 0 to 6.
    pub config: u8,
    /// What connection ids are encrypted by; `None` when they are not.
    pub key: Option<Secret>,
    /// Bytes, 4 to 18. With `server_id_length` at most 19.
    pub nonce_length: u8,
    /// Bytes, 1 to 15: of the `server_id` of every backend of the pool.
    pub server_id_length: u8,
}

/// A key of AES-128, which no log and no answer shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 16]);

impl Secret {
    /// Takes the key's bytes.
    pub fn new(bytes: [u8; 16]) -> Self {
        Secret(bytes)
    }

    /// For the cipher, and nothing else.
    pub fn bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Reads `quic_lb` of the pool with these backends. `Some(None)` is `off`.
pub(super) fn quic_lb(
    value: Value<'_>,
    backends: &[Backend],
    report: &mut Report,
) -> Option<Option<QuicLb>> {
    let expected = "`off` or a map with `config` and `key`";
    if !value.is_map() && !value.is_off() && !value.is_list() {
        // Perhaps the key, which no error shows.
        value.error(Problem::Shape { found: "a single value", expected }, report);
        return None;
    }
    value.off_or(report, |value, report| {
        let table = value.table(QUIC_LB, expected, report)?;
        if table.lacks("config") {
            let example = "write `config: 0`";
            value.error(Problem::Missing { key: "config", example }, report);
        }
        let config = table.read("config", 0, |v| {
            u8::try_from(v.integer(0..=CONFIG_MAX, "a whole number", "0", report)?).ok()
        });
        let key = table.read("key", None, |v| v.off_or(report, secret));
        let nonce_length = table.read("nonce_length", defaults::NONCE_LENGTH, |v| {
            u8::try_from(v.integer(NONCE_LENGTHS, "a whole number", "4", report)?).ok()
        });
        if let Some(backend) = backends.iter().find(|backend| backend.server_id.is_none()) {
            let name = Quoted::new(&backend.name);
            value.error(Problem::ServerIdMissing { name }, report);
        }
        // They are of one length.
        let server_id = backends.iter().find_map(|b| b.server_id.as_ref()).map_or(0, |id| id.len());
        if server_id + usize::from(nonce_length) > SERVER_ID_AND_NONCE {
            value.error(Problem::QuicLbLong { server_id, nonce: nonce_length }, report);
        }
        let server_id_length = u8::try_from(server_id).ok()?;
        Some(QuicLb { config, key, nonce_length, server_id_length })
    })
}

fn secret(value: Value<'_>, report: &mut Report) -> Option<Secret> {
    let text = value.text("`off` or 32 hex digits", report)?;
    let bytes = from_hex(text).and_then(|bytes| <[u8; 16]>::try_from(&*bytes).ok());
    if bytes.is_none() {
        value.error(Problem::SecretForm, report);
    }
    bytes.map(Secret)
}

/// Reads the `server_id` of a backend.
pub(super) fn server_id(value: Value<'_>, report: &mut Report) -> Option<Box<[u8]>> {
    let expected = "1 to 15 bytes in hex digits";
    let text = value.text(expected, report)?;
    let id = from_hex(text).filter(|id| SERVER_ID_LENGTHS.contains(&id.len()));
    if id.is_none() {
        let problem = Problem::Value { text: Quoted::new(text), expected, example: "0a01" };
        value.error(problem, report);
    }
    id
}

/// The server ids of a pool so far, and their lines.
#[derive(Debug, Default)]
pub(super) struct ServerIds {
    lines: HashMap<Box<[u8]>, usize>,
    /// Length and line.
    first: Option<(usize, usize)>,
}

impl ServerIds {
    /// Takes another one, which `value` says.
    pub(super) fn add(&mut self, id: &[u8], value: Value<'_>, report: &mut Report) {
        let line = value.at().line;
        let (others, first) = *self.first.get_or_insert((id.len(), line));
        if others != id.len() {
            value.error(Problem::ServerIdLength { bytes: id.len(), others, first }, report);
        }
        match self.lines.get(id) {
            Some(&first) => {
                let id = Quoted::new(&hex(id));
                value.error(Problem::ServerIdTwice { id, first }, report);
            }
            None => {
                self.lines.insert(id.into(), line);
            }
        }
    }
}

/// Reports pools of one listener whose connection ids cannot be told apart.
pub(super) fn ambiguities(
    listener: &Listener,
    pools: &[Pool],
    named: &Named<'_>,
    report: &mut Report,
) {
    if listener.protocol != Protocol::Udp {
        return;
    }
    let leads = listener.leads();
    let with = |index: &usize| pools.get(*index).and_then(|p| Some((p, p.quic_lb.as_ref()?)));
    let leads: Vec<(&Pool, &QuicLb)> = leads.iter().filter_map(with).collect();
    // Within one pool they have been told apart.
    if leads.len() < 2 {
        return;
    }
    let quoted = |pool: &Pool| Quoted::new(&pool.name);
    let mut configs: HashMap<u8, (&Pool, &QuicLb)> = HashMap::new();
    let mut ids: HashMap<(u8, &[u8]), (&Pool, &Address)> = HashMap::new();
    for (pool, quic_lb) in leads {
        let config = quic_lb.config;
        let (other, known) = *configs.entry(config).or_insert((pool, quic_lb));
        if known != quic_lb {
            let (first, second) = (quoted(other), quoted(pool));
            named.error(Problem::QuicLbAmbiguous { first, second, config }, report);
            continue;
        }
        let clash = pool.backends.iter().find_map(|backend| {
            let id = backend.server_id.as_deref()?;
            let (other, address) = *ids.entry((config, id)).or_insert((pool, &backend.address));
            (*address != backend.address).then_some((other, id))
        });
        if let Some((other, id)) = clash {
            let (first, second, id) = (quoted(other), quoted(pool), Quoted::new(&hex(id)));
            named.error(Problem::ServerIdAmbiguous { first, second, id }, report);
        }
    }
}

/// Digits in pairs, as they are read.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
