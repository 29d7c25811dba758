//! Which pool of a split, and which backend of a pool: exactly where a hash decides and what it
//! hashes is given, else how it will be picked.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use super::Source;
use crate::address::Address;
use crate::balance::PolicyKind;
use crate::balance::key::{KeyKind, Tuple};
use crate::config::Protocol;
use crate::route::Split;
use crate::snapshot::{Backend, Pool, Tried, split_key, split_pool};

/// Backends shown of those that a hash leads to.
const CHOICES: usize = 3;

/// Candidates shown of a pool; more are counted.
const CANDIDATES: usize = 10;

/// Both ends of the connection, as far as they are known.
#[derive(Debug)]
pub struct Peers {
    pub protocol: Protocol,
    client: Client,
    /// `None` where the listener has several addresses, or one that stands for many.
    local: Option<SocketAddr>,
}

#[derive(Clone, Copy, Debug)]
enum Client {
    Unknown,
    /// Of a unix socket: there is nothing to know.
    Unix,
    Ip(Source),
}

/// What of the key is not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Lack {
    #[error("the client's address; give it by --source")]
    Client,
    #[error("the client's port; give it by --source IP:PORT")]
    Port,
    #[error("the address that the client connects to, of several here")]
    Local,
}

impl Peers {
    pub fn new(protocol: Protocol, bind: &[Address], source: Option<Source>) -> Self {
        let unix = bind.iter().all(|address| address.ip().is_none());
        let client = match source {
            _ if unix => Client::Unix,
            Some(source) => Client::Ip(source),
            None => Client::Unknown,
        };
        let one = |address: &SocketAddr| !address.ip().is_unspecified() && address.port() != 0;
        let local = match bind {
            [address] => address.ip().filter(one),
            _ => None,
        };
        Peers { protocol, client, local }
    }

    /// What routes know of the client.
    pub fn source(&self) -> Option<IpAddr> {
        match self.client {
            Client::Ip(source) => Some(source.ip),
            Client::Unknown | Client::Unix => None,
        }
    }

    /// What hash policies look at, if it is enough for `key`.
    fn tuple<'a>(&self, key: KeyKind, sni: Option<&'a str>) -> Result<Tuple<'a>, Lack> {
        // What stands for an address that there is not, here and where the key does not need it.
        let none = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        let by_name = key == KeyKind::Sni && sni.is_some();
        let client = match self.client {
            Client::Unix => none,
            _ if by_name => none,
            Client::Unknown => return Err(Lack::Client),
            Client::Ip(Source { port: None, .. }) if key == KeyKind::FiveTuple => {
                return Err(Lack::Port);
            }
            Client::Ip(Source { ip, port }) => SocketAddr::new(ip, port.unwrap_or_default()),
        };
        let local = match (key, self.client, self.local) {
            (KeyKind::FiveTuple, Client::Ip(_), None) => return Err(Lack::Local),
            (_, _, local) => local.unwrap_or(none),
        };
        Ok(Tuple { protocol: self.protocol.number(), client, local, sni })
    }
}

impl fmt::Display for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.client {
            Client::Unknown => f.write_str("unknown: no `source` condition holds"),
            Client::Unix => f.write_str("none: clients of a unix socket have no address"),
            Client::Ip(Source { ip, port: None }) => ip.fmt(f),
            Client::Ip(Source { ip, port: Some(port) }) => SocketAddr::new(ip, port).fmt(f),
        }
    }
}

/// The pool and what it picks.
pub fn of_pool(pool: &Pool, sni: Option<&str>, peers: &Peers) -> String {
    let policy = pool.spec.policy;
    if !policy.hashes() {
        let how = how(policy, peers.protocol);
        return format!("pool      {}, {policy}\nbackend   {how}{}", pool.name, candidates(pool));
    }
    let key = pool.spec.key;
    let head = format!("pool      {}, {policy} of {key}\n", pool.name);
    let connection = match peers.tuple(key, sni) {
        Ok(connection) => connection,
        Err(lack) => {
            let unknown = format!("key       unknown: it needs {lack}\nbackend   one of\n");
            return format!("{head}{unknown}{}", candidates(pool));
        }
    };
    let hash = key.hash(&connection, pool.hash_seed);
    let slot = pool.policy.slot(hash).map_or_else(String::new, |slot| format!(", slot {slot}"));
    let key = key_line(key, peers.protocol, &connection);
    let key = format!("key       {key}: hash {hash:#018x}{slot}\n");
    let choices = choices(pool, hash);
    let Some((first, next)) = choices.split_first() else {
        return format!("{head}{key}backend   {NOTHING}\n");
    };
    let backend = format!("backend   {first}, while all backends are up\n");
    let next = match next {
        [] => "no other".to_owned(),
        next => next.join(", then "),
    };
    format!("{head}{key}{backend}next      {next}\n")
}

/// The backends that a hash leads to, one after the other as those before it fail.
fn choices(pool: &Pool, hash: u64) -> Vec<String> {
    // No policy that hashes draws a random number.
    let mut rng = fastrand::Rng::with_seed(0);
    let mut tried = Tried::default();
    let mut choices = Vec::new();
    while choices.len() < CHOICES
        && let Some(index) = pool.choose(&tried, hash, &mut rng)
    {
        let backend = &pool.backends[index];
        let backup = if backend.backup { ", a backup" } else { "" };
        choices.push(format!("{}{backup}", describe(backend)));
        tried.add(index);
    }
    choices
}

/// The pool of a split, and what it picks.
pub fn of_split(split: &Split, pools: &[Arc<Pool>], sni: Option<&str>, peers: &Peers) -> String {
    let key = match pools.first() {
        Some(first) => split_key(&first.spec),
        None => KeyKind::Source,
    };
    match peers.tuple(key, sni) {
        Err(lack) => {
            let names: Vec<&str> = pools.iter().map(|pool| &*pool.name).collect();
            let unknown = format!("split     by {key}, unknown: it needs {lack}\n");
            format!("{unknown}pool      one of {}\n", names.join(", "))
        }
        Ok(connection) => match split_pool(split, pools, &connection) {
            Some(pool) => format!("split     by {key}\n{}", of_pool(pool, sni, peers)),
            None => format!("split     {NOTHING}\n"),
        },
    }
}

/// What ends such a connection with `no_backend`.
const NOTHING: &str = "none: every weight is 0 (no_backend)";

fn key_line(key: KeyKind, protocol: Protocol, connection: &Tuple<'_>) -> String {
    let client = connection.client.ip();
    match (key, connection.sni) {
        (KeyKind::FiveTuple, _) => {
            format!("{} {} to {}", protocol.name(), connection.client, connection.local)
        }
        (KeyKind::Sni, Some(name)) => name.to_owned(),
        (KeyKind::Sni, None) => format!("{client}, for want of a name"),
        (KeyKind::Source, _) => client.to_string(),
        (KeyKind::SourceNet, _) => format!("the network of {client}"),
    }
}

/// How a policy that does not hash picks.
fn how(policy: PolicyKind, protocol: Protocol) -> &'static str {
    match policy {
        PolicyKind::RoundRobin => "in turn, by weight, of\n",
        PolicyKind::Random => "at random, by weight, of\n",
        PolicyKind::LeastConn if protocol == Protocol::Udp => {
            "the one with the fewest flows for its weight, of\n"
        }
        PolicyKind::LeastConn => "the one with the fewest sessions for its weight, of\n",
        PolicyKind::P2c => "the less loaded of two drawn at random from\n",
        PolicyKind::PeakEwma => "the quicker and less loaded of two drawn at random from\n",
        PolicyKind::Hash | PolicyKind::Ring | PolicyKind::Rendezvous | PolicyKind::Maglev => {
            "by hash, of\n"
        }
    }
}

/// The backends that may be picked, one a line.
fn candidates(pool: &Pool) -> String {
    let usable: Vec<&Backend> = pool.backends.iter().filter(|b| b.weight > 0).collect();
    if usable.is_empty() {
        return format!("          {NOTHING}\n");
    }
    let mut out = String::new();
    for backend in usable.iter().take(CANDIDATES) {
        let backup = if backend.backup { ", backup" } else { "" };
        out += &format!("          {}, weight {}{backup}\n", describe(backend), backend.weight);
    }
    match usable.len().checked_sub(CANDIDATES).filter(|more| *more > 0) {
        Some(more) => out + &format!("          ... {more} more\n"),
        None => out,
    }
}

/// Name and address; often the same.
fn describe(backend: &Backend) -> String {
    let address = backend.state.address.to_string();
    if *backend.name == *address { address } else { format!("{} at {address}", backend.name) }
}
