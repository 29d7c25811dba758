//! The compiled routes: against the naive model, and how their cost grows.

use std::fs;
use std::hint::black_box;
use std::time::{Duration, Instant};

use pointsman::route::{HostPattern, Request, RouteSpec, Routes, shadowed};
use pointsman::wire::Alpn;
use proptest::collection::vec;
use proptest::prelude::*;

mod model;

/// The fuzzer's corpus.
#[test]
fn corpus() {
    let files = fs::read_dir("tests/fuzz/corpus/route").unwrap();
    let read = files.map(|file| model::check(&fs::read(file.unwrap().path()).unwrap())).count();
    assert!(read > 0);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn answers_as_the_naive_model(bytes in vec(any::<u8>(), 0..600)) {
        model::check(&bytes);
    }
}

fn pattern(text: &str) -> HostPattern {
    text.parse().unwrap()
}

/// One route a name, half of them wildcards.
fn routes_of(names: usize) -> Vec<RouteSpec> {
    let name = |n: usize| match n % 2 {
        0 => pattern(&format!("host-{n}.customers.example.com")),
        _ => pattern(&format!("*.zone-{n}.example.net")),
    };
    (0..names).map(|n| RouteSpec { sni: vec![name(n)], ..RouteSpec::default() }).collect()
}

/// The least time that one of `rounds` of all requests takes, per request.
fn fastest(routes: &Routes, requests: &[Request], rounds: usize) -> Duration {
    let round = |_| {
        let start = Instant::now();
        for request in requests {
            black_box(routes.find(black_box(request)));
        }
        start.elapsed()
    };
    (0..rounds).map(round).min().unwrap() / u32::try_from(requests.len()).unwrap()
}

/// Prints what a match costs. Asserts only what no busy machine can upset: 10,000 names are not
/// tried one by one.
#[test]
fn cost_does_not_grow_with_names() {
    let alpn = Alpn::from_names(["h2", "http/1.1"]).unwrap();
    let mut costs = Vec::new();
    for names in [10, 100, 1000, 10_000, 100_000] {
        let specs = routes_of(names);
        let start = Instant::now();
        let routes = Routes::compile(&specs);
        let compiled = start.elapsed();
        let start = Instant::now();
        assert!(shadowed(&specs).is_empty());
        let searched = start.elapsed();
        // All over the names, so that caches do not flatter.
        let hits: Vec<String> = (0..1000)
            .map(|n| (n * 7919) % names)
            .map(|n| match n % 2 {
                0 => format!("host-{n}.customers.example.com"),
                _ => format!("www.zone-{n}.example.net"),
            })
            .collect();
        let requests: Vec<Request> = hits
            .iter()
            .map(|name| Request { sni: Some(name), alpn: &alpn, source: None })
            .collect();
        assert!(requests.iter().all(|request| routes.find(request).is_some()));
        let hit = fastest(&routes, &requests, 50);
        let misses = ["other.customers.example.com", "a.b.c.d.zone-x.example.net", "localhost"];
        let requests =
            misses.map(|name| Request { sni: Some(name), alpn: &alpn, source: None }).repeat(100);
        let miss = fastest(&routes, &requests, 50);
        println!(
            "{names} names: hit {hit:?}, miss {miss:?}; compile {compiled:?}, shadows {searched:?}"
        );
        costs.push(hit);
    }
    let [.., thousands, hundred_thousand] = costs[..] else { unreachable!() };
    assert!(hundred_thousand < 10 * costs[0].max(thousands), "{costs:?}");
}

/// 10,000 networks, each a route: as a name is.
#[test]
fn cost_does_not_grow_with_networks() {
    let alpn = Alpn::default();
    for nets in [10u32, 10_000] {
        let address = |n: u32| std::net::Ipv4Addr::from_bits((10 << 24) + (n << 8) + 1);
        let spec = |n| RouteSpec {
            source: vec![ipnet::Ipv4Net::new(address(n), 24).unwrap().into()],
            ..RouteSpec::default()
        };
        let routes = Routes::compile(&(0..nets).map(spec).collect::<Vec<_>>());
        let request = |n: u32| {
            let source = Some(address((n * 7919) % nets).into());
            Request { sni: None, alpn: &alpn, source }
        };
        let requests: Vec<Request> = (0..1000).map(request).collect();
        for (n, request) in (0..).zip(&requests) {
            assert_eq!(routes.find(request), Some(((n * 7919) % nets) as usize));
        }
        println!("{nets} networks: {:?}", fastest(&routes, &requests, 50));
    }
}
