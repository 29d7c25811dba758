//! Which route a new connection takes: the first in the order of the file all of whose conditions
//! hold, found without trying them one by one.
//!
//! Every host name and every source prefix of the configuration has the ascending list of routes
//! that name it. A request finds at most one list of its own for its name and one for its source,
//! linked to those of the wildcards and wider prefixes around them; a search walks both in step,
//! each skipping to where the other is. So the cost is that of a few hash look-ups and binary
//! searches, whatever the number of names, prefixes and routes, and nothing is allocated.

mod lists;
mod names;
mod pattern;
mod protocols;
mod shadow;
mod sources;
mod split;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use ipnet::IpNet;

use crate::wire::Alpn;

use names::Names;
use protocols::{Offered, Protocols};
use sources::Sources;

pub use pattern::{HostPattern, PatternError};
pub use shadow::{Shadow, shadowed};
pub use split::{Split, SplitError};

/// The conditions of one route. An empty list is no condition; of a list, any entry will do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteSpec {
    /// Host names.
    pub sni: Vec<HostPattern>,
    /// Protocols, any of which the client must offer.
    pub alpn: Alpn,
    /// Networks of the client. IPv4-mapped ones are IPv4, and bits behind the prefix do not count.
    pub source: Vec<IpNet>,
}

/// What is known of a connection that wants a route.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The name in the hello, as [`ClientHello::sni`](crate::wire::ClientHello::sni) has it.
    pub sni: Option<&'a str>,
    /// The protocols in the hello; empty without hello.
    pub alpn: &'a Alpn,
    /// The client's address; IPv4-mapped is IPv4. `None` (a unix socket) is in no network.
    pub source: Option<IpAddr>,
}

/// A kind of condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Condition {
    /// `sni`
    Sni,
    /// `alpn`
    Alpn,
    /// `source`
    Source,
}

impl RouteSpec {
    /// Whether they ask for what only the hello says.
    pub fn need_hello(&self) -> bool {
        !self.sni.is_empty() || !self.alpn.is_empty()
    }

    /// The first condition that does not hold, or `None` where all do. For `explain`, which tells
    /// of every route; [`Routes::find`] does not try them one by one.
    pub fn unmet(&self, request: &Request) -> Option<Condition> {
        let source = request.source.map(|source| source.to_canonical());
        let sni = |pattern: &HostPattern| request.sni.is_some_and(|name| pattern.matches(name));
        let net =
            |net: &IpNet| source.is_some_and(|source| sources::canonical(*net).contains(&source));
        if !self.sni.is_empty() && !self.sni.iter().any(sni) {
            return Some(Condition::Sni);
        }
        if !self.alpn.is_empty() && !self.alpn.iter().any(|name| request.alpn.offers(name)) {
            return Some(Condition::Alpn);
        }
        (!self.source.is_empty() && !self.source.iter().any(net)).then_some(Condition::Source)
    }
}

/// The routes of one listener, compiled.
#[derive(Debug)]
pub struct Routes {
    names: Names,
    sources: Sources,
    protocols: Protocols,
}

impl Routes {
    /// Compiles routes in the order of the file; [`Routes::find`] answers with indices into them.
    pub fn compile(specs: &[RouteSpec]) -> Self {
        Routes {
            names: Names::compile(specs),
            sources: Sources::compile(specs),
            protocols: Protocols::compile(specs),
        }
    }

    /// The first route all of whose conditions hold.
    pub fn find(&self, request: &Request) -> Option<usize> {
        let name = request.sni.and_then(|name| self.names.find(name));
        let source = request.source.and_then(|source| self.sources.find(source));
        self.first(name, source, &self.protocols.offered(request.alpn))
    }

    /// The first route that takes everything of a name, a source and protocols alike.
    fn first(&self, name: Option<u32>, source: Option<u32>, offered: &Offered) -> Option<usize> {
        let mut from = 0;
        loop {
            let route = self.names.lists.next(name, from)?;
            from = self.sources.lists.next(source, route)?;
            if from > route {
                continue;
            }
            if self.protocols.accept(route, offered) {
                return Some(route as usize);
            }
            from = route.checked_add(1)?;
        }
    }
}
