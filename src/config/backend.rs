//! The backends of a pool.

use std::collections::HashMap;
use std::sync::Arc;

use super::address::parse_address;
use super::compile::relative;
use super::error::{Place, Problem, Quoted};
use super::pool::max_connections;
use super::quic_lb::{ServerIds, server_id};
use super::report::Report;
use super::value::{Table, Value, name_problem};
use super::{Backend, defaults};
use crate::address::Address;
use crate::limits::{BACKENDS_PER_POOL, WEIGHT_MAX};

pub(super) const BACKEND: &[&str] =
    &["name", "address", "weight", "max_connections", "backup", "server_id"];

/// Reads the list of a pool, without those that were reported.
pub(super) fn backends(list: Value<'_>, items: &[Value<'_>], report: &mut Report) -> Vec<Backend> {
    if items.len() > BACKENDS_PER_POOL {
        let problem = Problem::ManyBackends { count: items.len(), max: BACKENDS_PER_POOL };
        list.error(problem, report);
        return Vec::new();
    }
    let mut addresses: HashMap<Address, usize> = HashMap::new();
    let mut names: HashMap<Arc<str>, usize> = HashMap::new();
    let mut server_ids = ServerIds::default();
    let mut backends = Vec::with_capacity(items.len());
    for item in items {
        let Some(backend) = backend(*item, report) else { continue };
        let line = item.at().line;
        if let Some(first) = addresses.get(&backend.address) {
            let address = Quoted::new(&backend.address.to_string());
            item.error(Problem::BackendTwice { address, first: Place::Line(*first) }, report);
        } else if let Some(first) = names.get(&backend.name) {
            let name = Quoted::new(&backend.name);
            item.error(Problem::NameTwice { name, first: *first }, report);
        } else {
            if let Some((id, value)) = backend.server_id.as_ref().zip(item.key("server_id")) {
                server_ids.add(id, value, report);
            }
            addresses.insert(backend.address.clone(), line);
            names.insert(backend.name.clone(), line);
            backends.push(backend);
        }
    }
    backends
}

/// A backend in its short form, or a map.
fn backend(value: Value<'_>, report: &mut Report) -> Option<Backend> {
    if !value.is_map() {
        let (address, text) = backend_address(value, report)?;
        return Some(Backend::new(Arc::from(text), address));
    }
    let table = value.table(BACKEND, "a map with `address`", report)?;
    let weight = table.read("weight", defaults::WEIGHT, |v| {
        let weight = v.integer(0..=u64::from(WEIGHT_MAX), "a whole number", "1", report)?;
        u16::try_from(weight).ok()
    });
    let max_connections = table.read("max_connections", None, |v| max_connections(v, report));
    let backup = table.read("backup", defaults::BACKUP, |v| v.boolean(report));
    let server_id = match table.get("server_id") {
        None => Some(None),
        Some(value) => server_id(value, report).map(Some),
    };
    let (name, address) = identity(value, &table, report)?;
    // Without the one it has, it would count as a backend that has none.
    let server_id = server_id?;
    Some(Backend { name, address, weight, max_connections, backup, server_id })
}

/// Name and address of a backend that is a map.
fn identity(
    value: Value<'_>,
    table: &Table<'_>,
    report: &mut Report,
) -> Option<(Arc<str>, Address)> {
    let address = match table.get("address") {
        Some(address) => backend_address(address, report).map(|(a, text)| (a, text.to_owned())),
        None => {
            if table.lacks("address") {
                let example = "write `address: 10.0.0.1:443`";
                value.error(Problem::Missing { key: "address", example }, report);
            }
            None
        }
    };
    let Some(name) = table.get("name") else {
        let (address, text) = address?;
        return Some((Arc::from(text), address));
    };
    let text = name.text("a name", report)?;
    // The name that a backend has by default may be spelled out, whatever is in it.
    let own = address.as_ref().is_some_and(|(_, address)| address == text);
    if let Some(problem) = name_problem(text).filter(|_| !own) {
        name.error(problem, report);
    }
    let (address, _) = address?;
    Some((Arc::from(text), address))
}

/// The address of a backend, and how it was written.
fn backend_address<'a>(value: Value<'a>, report: &mut Report) -> Option<(Address, &'a str)> {
    let text = value.text("an address, or a map with `address`", report)?;
    let address = match parse_address(text) {
        Ok(address) => address,
        Err(fault) => {
            value.error(fault, report);
            return None;
        }
    };
    let quoted = || Quoted::new(text);
    let problem = match address.ip() {
        Some(ip) if ip.port() == 0 => Problem::BackendPort(quoted()),
        Some(ip) if ip.ip().is_unspecified() => Problem::BackendUnspecified(quoted()),
        _ => {
            relative(value, &address, report);
            return Some((address, text));
        }
    };
    value.error(problem, report);
    None
}
