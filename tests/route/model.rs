//! Routes and requests from any bytes, and the naive answer: try every route in order.
//!
//! The universe is small, so that names, wildcards and networks meet. The model compares texts and
//! bits, and shares nothing with what it checks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use pointsman::route::{Request, RouteSpec, Routes, shadowed};
use pointsman::wire::Alpn;

const LABELS: [&str; 4] = ["a", "b", "c", "xn--bcher-kva"];
const PROTOCOLS: [&str; 4] = ["h2", "http/1.1", "acme-tls/1", "h"];
const REQUESTS: usize = 32;

#[derive(Debug)]
struct Route {
    names: Vec<String>,
    protocols: Vec<&'static str>,
    nets: Vec<(IpAddr, u8)>,
}

#[derive(Debug)]
struct Client {
    name: Option<String>,
    protocols: Vec<&'static str>,
    address: Option<IpAddr>,
}

/// Asserts that the compiled routes answer as the naive model does, that `unmet` agrees, and that
/// no request takes a route that is said to be shadowed.
pub fn check(bytes: &[u8]) {
    let mut source = Bytes(bytes.iter());
    let routes: Vec<Route> = (0..source.below(12)).map(|_| route(&mut source)).collect();
    let specs: Vec<RouteSpec> = routes.iter().map(spec).collect();
    let compiled = Routes::compile(&specs);
    let shadows = shadowed(&specs);
    for _ in 0..REQUESTS {
        let client = client(&mut source);
        let alpn = Alpn::from_names(&client.protocols).unwrap();
        let (sni, source) = (client.name.as_deref(), client.address);
        let request = Request { sni, alpn: &alpn, source };
        let expected = routes.iter().position(|route| holds(route, &client));
        assert_eq!(compiled.find(&request), expected, "{client:?} of {routes:#?}");
        for (route, spec) in routes.iter().zip(&specs) {
            let unmet = spec.unmet(&request);
            assert_eq!(unmet.is_none(), holds(route, &client), "{unmet:?} {client:?} {route:?}");
        }
        for shadow in &shadows {
            assert_ne!(Some(shadow.route), expected, "{shadow:?} {client:?} of {routes:#?}");
            assert!(shadow.by.iter().all(|by| *by < shadow.route), "{shadow:?}");
            assert!(!shadow.by.is_empty(), "{shadow:?}");
        }
    }
}

fn holds(route: &Route, client: &Client) -> bool {
    let name = |pattern: &String| {
        client.name.as_ref().is_some_and(|name| match pattern.strip_prefix('*') {
            Some(suffix) => name.ends_with(suffix) && name.len() > suffix.len(),
            None => name == pattern,
        })
    };
    let net = |net: &(IpAddr, u8)| {
        client.address.is_some_and(|address| match (mapped(address), mapped_net(*net)) {
            (IpAddr::V4(a), (IpAddr::V4(n), length)) => {
                (a.to_bits() ^ n.to_bits()).leading_zeros() >= length.into()
            }
            (IpAddr::V6(a), (IpAddr::V6(n), length)) => {
                (a.to_bits() ^ n.to_bits()).leading_zeros() >= length.into()
            }
            _ => false,
        })
    };
    (route.names.is_empty() || route.names.iter().any(name))
        && (route.protocols.is_empty()
            || route.protocols.iter().any(|wanted| client.protocols.contains(wanted)))
        && (route.nets.is_empty() || route.nets.iter().any(net))
}

fn mapped(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) if v6.segments()[..6] == [0, 0, 0, 0, 0, 0xffff] => {
            Ipv4Addr::from_bits(v6.to_bits() as u32).into()
        }
        other => other,
    }
}

fn mapped_net((address, length): (IpAddr, u8)) -> (IpAddr, u8) {
    match (address, mapped(address)) {
        (IpAddr::V6(_), v4 @ IpAddr::V4(_)) if length >= 96 => (v4, length - 96),
        _ => (address, length),
    }
}

fn spec(route: &Route) -> RouteSpec {
    RouteSpec {
        sni: route.names.iter().map(|name| name.parse().unwrap()).collect(),
        alpn: Alpn::from_names(&route.protocols).unwrap(),
        source: route.nets.iter().map(|net| IpNet::new(net.0, net.1).unwrap()).collect(),
    }
}

fn route(source: &mut Bytes) -> Route {
    let pattern = |source: &mut Bytes| match source.below(3) {
        0 => format!("*.{}", name(source)),
        _ => name(source),
    };
    Route {
        names: source.list(4, pattern),
        protocols: source.list(3, |source| source.of(&PROTOCOLS)),
        nets: source.list(3, |source| {
            let address = address(source);
            let bits = if address.is_ipv4() { 33 } else { 129 };
            (address, source.below(bits))
        }),
    }
}

fn client(source: &mut Bytes) -> Client {
    let name = (source.below(8) > 0).then(|| name(source));
    let protocols = source.list(4, |source| source.of(&PROTOCOLS));
    let address = (source.below(8) > 0).then(|| address(source));
    Client { name, protocols, address }
}

fn name(source: &mut Bytes) -> String {
    let labels: Vec<_> = (0..=source.below(4)).map(|_| source.of(&LABELS)).collect();
    labels.join(".")
}

fn address(source: &mut Bytes) -> IpAddr {
    let v4 = Ipv4Addr::new(10, source.below(2), 0, source.below(4));
    match source.below(4) {
        0 => v4.to_ipv6_mapped().into(),
        1 => Ipv6Addr::from_bits(u128::from(source.below(4)) << 126 | 1).into(),
        _ => v4.into(),
    }
}

/// Choices out of bytes; all the first one when they have run out.
struct Bytes<'a>(std::slice::Iter<'a, u8>);

impl Bytes<'_> {
    fn below(&mut self, bound: u8) -> u8 {
        self.0.next().map_or(0, |byte| byte % bound)
    }

    fn of<T: Copy>(&mut self, values: &[T]) -> T {
        values[usize::from(self.below(values.len() as u8))]
    }

    fn list<T>(&mut self, bound: u8, mut one: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.below(bound)).map(|_| one(self)).collect()
    }
}
