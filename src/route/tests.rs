//! Tables. Against a model, and how the cost grows: `tests/route/`.

use super::*;

/// A route from `sni alpn source`, each a list with commas or `-`.
fn spec(text: &str) -> RouteSpec {
    let fields: Vec<Vec<&str>> = text.split(' ').map(list).collect();
    let [sni, alpn, source] = &fields[..] else { panic!("{text}") };
    RouteSpec {
        sni: sni.iter().map(|name| name.parse().unwrap()).collect(),
        alpn: Alpn::from_names(alpn).unwrap(),
        source: source.iter().map(|net| net.parse().unwrap()).collect(),
    }
}

fn list(field: &str) -> Vec<&str> {
    field.split(',').filter(|entry| *entry != "-").collect()
}

fn specs(routes: &[&str]) -> Vec<RouteSpec> {
    routes.iter().map(|text| spec(text)).collect()
}

/// Asserts which route requests like `name protocols address` take.
#[track_caller]
fn check(routes: &[&str], requests: &[(&str, Option<usize>)]) {
    let specs = specs(routes);
    let compiled = Routes::compile(&specs);
    for (text, expected) in requests {
        let fields: Vec<Vec<&str>> = text.split(' ').map(list).collect();
        let [sni, alpn, source] = &fields[..] else { panic!("{text}") };
        let request = Request {
            sni: sni.first().copied(),
            alpn: &Alpn::from_names(alpn).unwrap(),
            source: source.first().map(|address| address.parse().unwrap()),
        };
        assert_eq!(compiled.find(&request), *expected, "{text} {routes:?}");
        let first = specs.iter().position(|spec| spec.unmet(&request).is_none());
        assert_eq!(first, *expected, "{text} {routes:?}");
    }
}

#[test]
fn names() {
    let routes = ["a.com - -", "*.a.com - -", "b.com,*.b.com - -", "*.x.a.com - -"];
    check(
        &routes,
        &[
            ("a.com - -", Some(0)),
            ("www.a.com - -", Some(1)),
            ("y.x.a.com - -", Some(1)),
            ("b.com - -", Some(2)),
            ("b.b.com - -", Some(2)),
            ("c.com - -", None),
            ("com - -", None),
            ("aa.com - -", None),
            ("- - -", None),
            ("- h2 10.0.0.1", None),
        ],
    );
}

#[test]
fn the_first_in_the_file_wins_not_the_narrowest() {
    check(&["*.a.com - -", "www.a.com - -"], &[("www.a.com - -", Some(0))]);
    check(&["www.a.com - -", "*.a.com - -"], &[("www.a.com - -", Some(0))]);
    check(&["*.com - -", "*.a.com - -"], &[("www.a.com - -", Some(0)), ("a.com - -", Some(0))]);
    check(&["*.a.com - -", "*.com - -"], &[("www.a.com - -", Some(0)), ("b.com - -", Some(1))]);
    check(&["- - -", "a.com - -"], &[("a.com - -", Some(0)), ("- - -", Some(0))]);
    check(&["- - 10.0.0.0/8", "- - 10.1.0.0/16"], &[("- - 10.1.0.1", Some(0))]);
}

#[test]
fn protocols() {
    // ACME challenges of a name go elsewhere than its other traffic (RFC 8737).
    let routes = ["a.com acme-tls/1 -", "a.com - -", "- h2,http/1.1 -", "- - -"];
    check(
        &routes,
        &[
            ("a.com acme-tls/1 -", Some(0)),
            ("a.com h2 -", Some(1)),
            ("a.com - -", Some(1)),
            ("b.com http/1.1,h3 -", Some(2)),
            ("- h2 -", Some(2)),
            ("b.com acme-tls/1 -", Some(3)),
            ("b.com - -", Some(3)),
        ],
    );
}

/// The 129th protocol and those behind it have no bit.
#[test]
fn more_protocols_than_bits() {
    let routes: Vec<String> = (0..200).map(|n| format!("- p{n},q{n} -")).collect();
    let routes: Vec<&str> = routes.iter().map(String::as_str).collect();
    for n in 0..200 {
        let requests = [format!("- p{n} -"), format!("- x,q{n} -"), format!("- r{n} -")];
        let [p, q, r] = requests.each_ref().map(String::as_str);
        check(&routes, &[(p, Some(n)), (q, Some(n)), (r, None)]);
    }
}

#[test]
fn sources() {
    let routes = ["- - 10.1.0.0/16,192.168.0.1/32", "- - 10.0.0.0/8", "- - 2001:db8::/32"];
    check(
        &routes,
        &[
            ("- - 10.1.2.3", Some(0)),
            ("- - 192.168.0.1", Some(0)),
            ("- - 10.2.0.1", Some(1)),
            ("- - ::ffff:10.2.0.1", Some(1)),
            ("- - 2001:db8::1", Some(2)),
            ("- - 2001:db9::1", None),
            ("- - 11.0.0.1", None),
            ("- - -", None),
        ],
    );
    // An IPv4-mapped network is an IPv4 one; an IPv6 one around it is not.
    check(&["- - ::ffff:10.0.0.0/104"], &[("- - 10.1.1.1", Some(0)), ("- - 11.1.1.1", None)]);
    check(&["- - ::ffff:0.0.0.0/96"], &[("- - 10.1.1.1", Some(0)), ("- - ::1", None)]);
    check(&["- - ::/0", "- - 0.0.0.0/0"], &[("- - 10.1.1.1", Some(1)), ("- - ::1", Some(0))]);
    // Bits behind the prefix do not count.
    check(&["- - 10.1.2.3/8"], &[("- - 10.9.9.9", Some(0))]);
}

#[test]
fn all_conditions_of_a_route_must_hold() {
    let routes = ["a.com h2 10.0.0.0/8", "a.com h2 -", "a.com - 10.0.0.0/8", "*.com h2 11.0.0.0/8"];
    check(
        &routes,
        &[
            ("a.com h2 10.0.0.1", Some(0)),
            ("a.com h2 11.0.0.1", Some(1)),
            ("a.com h3 10.0.0.1", Some(2)),
            ("a.com h3 11.0.0.1", None),
            ("b.com h2 11.0.0.1", Some(3)),
            ("b.com h2 10.0.0.1", None),
        ],
    );
}

#[test]
fn what_needs_the_hello() {
    let check = |routes: &[&str], expected| {
        assert_eq!(specs(routes).iter().any(RouteSpec::need_hello), expected, "{routes:?}");
    };
    check(&[], false);
    check(&["- - -"], false);
    check(&["- - 10.0.0.0/8", "- - -"], false);
    check(&["- - -", "a.com - -"], true);
    check(&["- h2 -"], true);
}

/// Names with more labels than any wildcard, or than any name may have.
#[test]
fn long_names() {
    let routes = Routes::compile(&specs(&["*.a - -"]));
    let alpn = Alpn::default();
    let find = |name: &str| routes.find(&Request { sni: Some(name), alpn: &alpn, source: None });
    for labels in [1, 2, 126, 127, 128, 129, 1000] {
        let name = vec!["a"; labels].join(".");
        assert_eq!(find(&name), (labels > 1).then_some(0), "{labels}");
    }
    assert_eq!(find(""), None);
    assert_eq!(find("."), None);
}

#[test]
fn shadows() {
    let check = |routes: &[&str], expected: &[(usize, &[usize])]| {
        let found = shadowed(&specs(routes));
        let found: Vec<_> =
            found.iter().map(|shadow| (shadow.route, shadow.by.as_slice())).collect();
        assert_eq!(found, expected, "{routes:?}");
    };
    check(&[], &[]);
    check(&["- - -", "- - -"], &[(1, &[0])]);
    check(&["- - -", "a.com h2 10.0.0.0/8"], &[(1, &[0])]);
    check(&["a.com h2 10.0.0.0/8", "- - -"], &[]);
    // Names.
    check(&["a.com - -", "a.com - -"], &[(1, &[0])]);
    check(&["*.a.com - -", "www.a.com - -"], &[(1, &[0])]);
    check(&["*.a.com - -", "*.x.a.com - -"], &[(1, &[0])]);
    check(&["*.a.com - -", "a.com - -"], &[]);
    check(&["www.a.com - -", "*.a.com - -"], &[]);
    check(&["*.x.a.com - -", "*.a.com - -"], &[]);
    check(&["a.com - -", "*.b.com - -", "a.com,x.b.com - -"], &[(2, &[0, 1])]);
    check(&["a.com - -", "a.com,b.com - -"], &[]);
    check(&["a.com,a.com - -"], &[]);
    // Protocols: a client offers several, so one that offers h2 need not offer h3.
    check(&["a.com h2 -", "a.com h2 -"], &[(1, &[0])]);
    check(&["a.com h2,h3 -", "a.com h2 -"], &[(1, &[0])]);
    check(&["a.com h2 -", "a.com h2,h3 -"], &[]);
    check(&["a.com h2 -", "a.com h3 -", "a.com h3,h2 -"], &[(2, &[0, 1])]);
    check(&["a.com h2 -", "a.com - -"], &[]);
    // Sources.
    check(&["- - 10.0.0.0/8", "- - 10.1.0.0/16"], &[(1, &[0])]);
    check(&["- - 10.1.0.0/16", "- - 10.0.0.0/8"], &[]);
    check(&["- - 10.0.0.0/8", "- - ::ffff:10.0.0.0/112"], &[(1, &[0])]);
    check(&["- - ::/0", "- - 10.0.0.0/8"], &[]);
    check(&["- - ::/0", "- - 0.0.0.0/0", "- - 10.0.0.0/8,2001:db8::/32"], &[(2, &[0, 1])]);
    // All three, and each of them short of it.
    check(&["*.a.com h2 10.0.0.0/8", "b.a.com h2 10.1.1.1/32"], &[(1, &[0])]);
    check(&["*.a.com h2 10.0.0.0/8", "a.com h2 10.1.1.1/32"], &[]);
    check(&["*.a.com h2 10.0.0.0/8", "b.a.com h3 10.1.1.1/32"], &[]);
    check(&["*.a.com h2 10.0.0.0/8", "b.a.com h2 11.1.1.1/32"], &[]);
    // Adding up is not seen; saying nothing is not wrong.
    check(&["- - 10.0.0.0/9", "- - 10.128.0.0/9", "- - 10.0.0.0/8"], &[]);
}

/// More combinations than are searched: nothing is claimed, and it ends.
#[test]
fn shadows_are_bounded() {
    let name = |n| format!("n{n}.com").parse().unwrap();
    let net = |n: u32| IpNet::new(IpAddr::from(n.to_be_bytes()), 32).unwrap();
    let large = RouteSpec {
        sni: (0..3000).map(name).collect(),
        alpn: Alpn::default(),
        source: (0..3000).map(net).collect(),
    };
    assert_eq!(shadowed(&[large.clone(), large]), []);
}
