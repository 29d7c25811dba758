//! The section `routes` of a listener.

use std::collections::HashSet;

use super::error::Problem;
use super::listener::{Leads, pool_index};
use super::prefix::parse_prefix;
use super::report::Report;
use super::value::{Table, Value};
use super::warning::{Suspicion, Takers};
use crate::limits::{ROUTES_PER_LISTENER, SPLIT_WEIGHT_MAX};
use crate::route::{HostPattern, PatternError, RouteSpec, Split, shadowed};
use crate::wire::Alpn;

pub(super) const ROUTE: &[&str] = &["sni", "alpn", "source", "pool", "split", "action"];
pub(super) const SPLIT: &[&str] = &["pool", "weight"];

/// Where a route leads; exactly one of these keys.
const LEADS: [&str; 3] = ["pool", "split", "action"];

/// Conditions on a new connection, and where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// All of these must hold.
    pub conditions: RouteSpec,
    /// Where it goes.
    pub action: Action,
}

impl Route {
    /// A route that every connection takes.
    pub fn unconditional(action: Action) -> Self {
        Route { conditions: RouteSpec::default(), action }
    }
}

/// Where a route leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Index into [`super::Config::pools`].
    Pool(usize),
    /// One of several pools; `split` picks among `shares`.
    Split {
        /// In the order of the file.
        shares: Vec<Share>,
        /// Over indices into `shares`.
        split: Split,
    },
    /// The TLS alert `unrecognized_name`.
    Reject,
    /// RST.
    Reset,
}

impl Action {
    /// The pools it leads to, as indices into [`super::Config::pools`].
    pub fn pools(&self) -> Vec<usize> {
        match self {
            Action::Pool(pool) => vec![*pool],
            Action::Split { shares, .. } => shares.iter().map(|share| share.pool).collect(),
            Action::Reject | Action::Reset => Vec::new(),
        }
    }
}

/// A pool's share of a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Index into [`super::Config::pools`].
    pub pool: usize,
    /// Of the sum of all weights.
    pub weight: u32,
}

/// Reads the routes of a listener, in order.
pub(super) fn routes(value: Value<'_>, leads: Leads<'_>, report: &mut Report) -> Vec<Route> {
    let items = value.items("a list of routes", report);
    if items.len() > ROUTES_PER_LISTENER {
        let problem = Problem::ManyRoutes { count: items.len(), max: ROUTES_PER_LISTENER };
        value.error(problem, report);
        return Vec::new();
    }
    let routes = items.iter().filter_map(|item| route(*item, leads, report)).collect::<Vec<_>>();
    // With an error somewhere nobody sees warnings, and a route may be missing from the list.
    if !report.has_errors() {
        shadow_doubts(&routes, &items, report);
    }
    routes
}

/// Warns of routes that never match because earlier ones take everything.
fn shadow_doubts(routes: &[Route], items: &[Value<'_>], report: &mut Report) {
    let conditions: Vec<RouteSpec> = routes.iter().map(|r| r.conditions.clone()).collect();
    for shadow in shadowed(&conditions) {
        let taker = |by: usize| items.get(by).map(|item| (by, item.at().line));
        let by = Takers(shadow.by.into_iter().filter_map(taker).collect());
        if let Some(item) = items.get(shadow.route) {
            item.warn(Suspicion::ShadowedRoute { by }, report);
        }
    }
}

fn route(value: Value<'_>, leads: Leads<'_>, report: &mut Report) -> Option<Route> {
    let table = value.table(ROUTE, "a map with conditions and `pool`", report)?;
    let sni = each(&table, "sni", "a host name or a list of them", report, host);
    let alpn = each(&table, "alpn", "a protocol name or a list of them", report, alpn);
    // Each name has been looked at by itself.
    let alpn = Alpn::from_names(alpn).unwrap_or_default();
    let source = each(&table, "source", "a prefix or a list of them", report, |value, report| {
        let text = value.text("a prefix", report)?;
        parse_prefix(text).map_err(|fault| value.error(fault, report)).ok()
    });
    if leads.udp.is_some_and(|udp| udp.per_packet) {
        for (key, value) in ["sni", "alpn"].into_iter().filter_map(|k| Some((k, table.get(k)?))) {
            value.error(Problem::HelloPerPacket { key }, report);
        }
    }
    let action = action(&table, value, leads, report)?;
    Some(Route { conditions: RouteSpec { sni, alpn, source }, action })
}

/// One value or a list of them, each through `read`.
fn each<T>(
    table: &Table<'_>,
    key: &'static str,
    expected: &'static str,
    report: &mut Report,
    read: impl Fn(Value<'_>, &mut Report) -> Option<T>,
) -> Vec<T> {
    match table.get(key) {
        None => Vec::new(),
        Some(value) if value.is_list() => {
            let items = value.items(expected, report);
            items.iter().filter_map(|item| read(*item, report)).collect()
        }
        Some(value) => read(value, report).into_iter().collect(),
    }
}

fn host(value: Value<'_>, report: &mut Report) -> Option<HostPattern> {
    let text = value.text("a host name", report)?;
    text.parse().map_err(|fault: PatternError| value.error(fault, report)).ok()
}

fn alpn(value: Value<'_>, report: &mut Report) -> Option<Vec<u8>> {
    let text = value.text("a protocol name", report)?;
    match Alpn::from_names([text]) {
        Ok(_) => Some(text.as_bytes().to_vec()),
        Err(fault) => {
            value.error(fault, report);
            None
        }
    }
}

fn action(
    table: &Table<'_>,
    route: Value<'_>,
    leads: Leads<'_>,
    report: &mut Report,
) -> Option<Action> {
    let mut said = LEADS.iter().filter_map(|key| table.get(key).map(|value| (*key, value)));
    let Some((key, value)) = said.next() else {
        if LEADS.iter().all(|key| table.lacks(key)) {
            let example = "name where it leads, or write `action: reject`";
            route.error(Problem::Missing { key: "pool", example }, report);
        }
        return None;
    };
    if let Some((other, value)) = said.next() {
        value.error(Problem::TwoLeads { key: other, first: key }, report);
        return None;
    }
    match key {
        "pool" => pool_index(value, leads, report).map(Action::Pool),
        "split" => split(value, leads, report),
        _ => {
            let actions = [("reject", Action::Reject), ("reset", Action::Reset)];
            let words = actions.each_ref().map(|(word, _)| (*word, *word));
            let word = value.choice("known action", &words, report)?;
            actions.into_iter().find(|(known, _)| *known == word).map(|(_, action)| action)
        }
    }
}

fn split(value: Value<'_>, leads: Leads<'_>, report: &mut Report) -> Option<Action> {
    let items = value.items("a list of `{ pool: ..., weight: ... }`", report);
    let mut seen = HashSet::new();
    let mut shares = Vec::with_capacity(items.len());
    for item in &items {
        let Some(table) = item.table(SPLIT, "a map with `pool` and `weight`", report) else {
            continue;
        };
        for (key, example) in [("pool", "name a pool"), ("weight", "write it like `weight: 95`")] {
            if table.lacks(key) {
                item.error(Problem::Missing { key, example }, report);
            }
        }
        let pool = table.get("pool").and_then(|value| pool_index(value, leads, report));
        let weight = table.get("weight").and_then(|value| {
            let range = 0..=u64::from(SPLIT_WEIGHT_MAX);
            let weight = value.integer(range, "a whole number", "95", report)?;
            u32::try_from(weight).ok()
        });
        let (Some(pool), Some(weight)) = (pool, weight) else { continue };
        if !seen.insert(pool) {
            item.error(Problem::SplitTwice, report);
        }
        shares.push(Share { pool, weight });
    }
    if shares.len() < items.len() || items.is_empty() {
        return None;
    }
    match Split::new(shares.iter().map(|share| share.weight).enumerate()) {
        Ok(split) => Some(Action::Split { shares, split }),
        Err(fault) => {
            value.error(fault, report);
            None
        }
    }
}
