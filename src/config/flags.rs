//! A configuration from flags alone: `pointsman run --listen A --backend B… --balance P --admin A`.

use std::collections::HashMap;
use std::sync::Arc;

use super::address::parse_address;
use super::bind::Binds;
use super::error::{Errors, Place, Problem, Quoted};
use super::report::Report;
use super::{Action, Admin, Backend, Config, Listener, Pool, Protocol, Route, defaults, words};
use crate::address::Address;
use crate::balance::Spec;
use crate::limits::BACKENDS_PER_POOL;

const LISTEN: &str = "--listen";
const BACKEND: &str = "--backend";
const BALANCE: &str = "--balance";
const ADMIN: &str = "--admin";

/// One listener `listen`, one pool `pool`, everything else as by default.
///
/// # Errors
///
/// Every error of the flags; each names its flag.
pub fn from_flags(
    listen: &[String],
    backends: &[String],
    balance: Option<&str>,
    admin: Option<&str>,
) -> Result<Config, Errors> {
    let mut report = Report::default();
    let mut binds = Binds::default();
    let mut bind = |flag: &'static str, text: &str, report: &mut Report| {
        let address = address(flag, text, report)?;
        let taken = binds.add(Protocol::Tcp, &address, defaults::V6_ONLY, Place::Flag(flag));
        taken.map_err(|problem| report.error(None, flag.to_owned(), problem)).ok()?;
        Some(address)
    };
    let admin = admin.and_then(|text| bind(ADMIN, text, &mut report));
    let bind: Vec<Address> =
        listen.iter().filter_map(|text| bind(LISTEN, text, &mut report)).collect();
    if listen.is_empty() {
        report.error(None, LISTEN.to_owned(), Problem::FlagMissing("--listen 127.0.0.1:8080"));
    }
    let route = Route::unconditional(Action::Pool(0));
    let listener = Listener::new(Arc::from("listen"), bind, vec![route]);
    let pool = Pool {
        balance: balance.map_or(defaults::BALANCE, |text| policy(text, &mut report)),
        ..Pool::new(Arc::from("pool"), pool_backends(backends, &mut report))
    };
    report.finish("")?;
    Ok(Config {
        workers: defaults::WORKERS,
        hash_seed: defaults::HASH_SEED,
        admin: admin.map(|bind| Admin { bind, token_file: None }),
        log: defaults::LOG,
        access_log: None,
        shutdown: defaults::SHUTDOWN,
        max_connections: defaults::MAX_CONNECTIONS,
        listeners: vec![listener],
        pools: vec![pool],
    })
}

fn address(flag: &'static str, text: &str, report: &mut Report) -> Option<Address> {
    parse_address(text).map_err(|fault| report.error(None, flag.to_owned(), fault.into())).ok()
}

fn policy(text: &str, report: &mut Report) -> Spec {
    let policies = words::policies();
    let Some((_, policy)) = policies.iter().find(|(name, _)| *name == text) else {
        let hint = report.hint(text, policies.iter().map(|(name, _)| *name), "");
        let problem = Problem::Choice { text: Quoted::new(text), what: "balancing policy", hint };
        report.error(None, BALANCE.to_owned(), problem);
        return defaults::BALANCE;
    };
    Spec { policy: *policy, ..defaults::BALANCE }
}

fn pool_backends(texts: &[String], report: &mut Report) -> Vec<Backend> {
    let mut seen: HashMap<Address, ()> = HashMap::new();
    let mut backends = Vec::with_capacity(texts.len());
    if texts.is_empty() {
        let problem = Problem::FlagMissing("--backend 127.0.0.1:9001");
        report.error(None, BACKEND.to_owned(), problem);
    }
    if texts.len() > BACKENDS_PER_POOL {
        let problem = Problem::ManyBackends { count: texts.len(), max: BACKENDS_PER_POOL };
        report.error(None, BACKEND.to_owned(), problem);
    }
    for text in texts {
        let Some(address) = address(BACKEND, text, report) else { continue };
        let quoted = Quoted::new(text);
        let problem = match address.ip() {
            Some(ip) if ip.port() == 0 => Some(Problem::BackendPort(quoted)),
            Some(ip) if ip.ip().is_unspecified() => Some(Problem::BackendUnspecified(quoted)),
            _ if seen.insert(address.clone(), ()).is_some() => {
                Some(Problem::BackendTwice { address: quoted, first: Place::Flag(BACKEND) })
            }
            _ => None,
        };
        match problem {
            Some(problem) => report.error(None, BACKEND.to_owned(), problem),
            None => {
                let name = Arc::from(text.as_str());
                backends.push(Backend::new(name, address));
            }
        }
    }
    backends
}
