//! Routes that can never match, because earlier ones take everything first.

use super::{RouteSpec, Routes};
use crate::limits::SHADOW_SEARCHES;
use crate::wire::Alpn;

/// A route that never matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shadow {
    /// Its index.
    pub route: usize,
    /// The routes that take what it would, ascending: together, all of it.
    pub by: Vec<usize>,
}

/// The routes that can never match.
///
/// Each combination of a name, a protocol and a network of a route is looked up as a connection
/// would be; if earlier routes take every combination whole, the route is shadowed. What this says
/// is always true. It does not see that several narrower patterns or networks of *earlier* routes
/// add up to a wider one of this, and it stops after [`SHADOW_SEARCHES`].
pub fn shadowed(specs: &[RouteSpec]) -> Vec<Shadow> {
    let routes = Routes::compile(specs);
    let mut searches = SHADOW_SEARCHES;
    let shadow = |(route, spec)| {
        let by = takers(&routes, route, spec, &mut searches)?;
        Some(Shadow { route, by })
    };
    specs.iter().enumerate().filter_map(shadow).collect()
}

/// The routes before `route` that take all of it, or `None` where something is left to it.
fn takers(
    routes: &Routes,
    route: usize,
    spec: &RouteSpec,
    searches: &mut usize,
) -> Option<Vec<usize>> {
    let names = spec.sni.iter().map(|pattern| routes.names.key(pattern));
    let sources = spec.source.iter().map(|net| routes.sources.key(*net));
    let (names, sources) = (or_any(names), or_any(sources));
    let protocols: Vec<Alpn> = match spec.alpn.is_empty() {
        true => vec![Alpn::default()],
        false => spec.alpn.iter().filter_map(|name| Alpn::from_names([name]).ok()).collect(),
    };
    let mut by = Vec::new();
    for alpn in &protocols {
        let offered = routes.protocols.offered(alpn);
        for &name in &names {
            for &source in &sources {
                *searches = searches.checked_sub(1)?;
                let taker = routes.first(name, source, &offered)?;
                if taker >= route {
                    return None;
                }
                if by.last() != Some(&taker) {
                    by.push(taker);
                }
            }
        }
    }
    by.sort_unstable();
    by.dedup();
    Some(by)
}

/// The keys of a list of conditions; of an empty one, what satisfies only routes without any.
fn or_any(keys: impl Iterator<Item = Option<u32>>) -> Vec<Option<u32>> {
    let keys: Vec<_> = keys.collect();
    if keys.is_empty() { vec![None] } else { keys }
}
