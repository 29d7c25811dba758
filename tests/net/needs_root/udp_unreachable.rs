//! Backends over UDP that cannot be reached, which another says than they: a router on the way, or
//! this machine when nobody on the link has the address.

use crate::harness::{Metrics, Pointsman, Record, UdpBackend, UdpClient, wait_until};
use crate::namespace::Network;

/// How a backend goes: what the router does about it, or that nobody answers on the link.
const WAYS: [(&str, &str); 8] = [
    ("10.9.0.2", "route add unreachable 10.9.0.2/32"),
    ("10.9.0.2", "route add prohibit 10.9.0.2/32"),
    ("10.9.0.2", "route flush cache"),
    ("10.2.0.66", "route flush cache"),
    ("fd09::2", "route add unreachable fd09::2/128"),
    ("fd09::2", "route add prohibit fd09::2/128"),
    ("fd09::2", "route flush cache"),
    ("fd02::66", "route flush cache"),
];

/// One backend that can go, behind a router or on the link, and one that stays.
struct Site {
    pointsman: Pointsman,
    edge: String,
    ip: &'static str,
    gone: UdpBackend,
    stays: UdpBackend,
    network: Network,
}

impl Site {
    fn open(ip: &'static str, pool: &str) -> Self {
        let network = Network::of_both_families();
        let (middle, backend) = (&network.middle, &network.backend);
        middle.ip("route add 10.9.0.0/24 via 10.2.0.2");
        middle.ip("-6 route add fd09::/64 via fd02::2");
        for (parameter, value) in [
            ("net/ipv4/ip_forward", "1"),
            ("net/ipv6/conf/all/forwarding", "1"),
            ("net/ipv4/icmp_ratelimit", "0"),
            ("net/ipv6/icmp/ratelimit", "0"),
        ] {
            backend.set(parameter, value);
        }
        // Three times so long until nobody has the address.
        middle.set("net/ipv4/neigh/right/retrans_time_ms", "300");
        middle.set("net/ipv6/neigh/right/retrans_time_ms", "300");
        let at = |ip: &str| if ip.contains(':') { format!("[{ip}]:0") } else { format!("{ip}:0") };
        have(&network, "add", ip);
        let [gone, stays] = backend.within(|| {
            [(ip, "gone"), ("10.2.0.2", "stays")].map(|(ip, name)| UdpBackend::named(&at(ip), name))
        });
        let pointsman = middle.start(&format!(
            "shutdown: {{ grace: 0s }}\n\
             listeners: {{ edge: {{ bind: \"10.1.0.1:0\", protocol: udp, pool: pool }} }}\n\
             pools: {{ pool: {{ balance: round_robin, backends: [\"{}\", \"{}\"], {pool} }} }}\n",
            gone.address(),
            stays.address()
        ));
        let edge = pointsman.address("edge");
        Site { pointsman, edge, ip, gone, stays, network }
    }

    fn client(&self) -> UdpClient {
        self.network.client.within(|| UdpClient::from("10.1.0.2:0", &self.edge))
    }

    /// The host of the backend is gone.
    fn go(&self, router: &str) {
        have(&self.network, "delete", self.ip);
        let family = if self.ip.contains(':') { "-6 " } else { "" };
        self.network.backend.ip(&format!("{family}{router}"));
        self.network.middle.ip("neigh flush dev right");
    }

    fn failures(&self, metrics: &Metrics, reason: &str) -> f64 {
        let labels = [("pool", "pool"), ("backend", &*self.gone.address()), ("reason", reason)];
        metrics.value("pointsman_backend_connect_failures_total", &labels)
    }

    fn unreachable(&self) -> f64 {
        self.failures(&self.pointsman.metrics(), "unreachable")
    }
}

/// The backend's machine has the address or not.
fn have(network: &Network, verb: &str, ip: &str) {
    let device = if ip.ends_with("66") { "eth0" } else { "lo" };
    let length = if ip.contains(':') { "128 nodad" } else { "32" };
    let length = if verb == "delete" { length.trim_end_matches(" nodad") } else { length };
    let (prefix, flag) = length.split_once(' ').unwrap_or((length, ""));
    let line = format!("address {verb} {ip}/{prefix} dev {device} {flag}");
    network.backend.ip(line.trim_end());
}

#[test]
fn a_flow_moves_when_its_backend_is_unreachable() {
    for (ip, router) in WAYS {
        let site = Site::open(ip, "health: off, outlier: off");
        let clients = [site.client(), site.client()];
        let names = clients.each_ref().map(|client| client.backend("x"));
        assert!(names.contains(&"gone".to_owned()) && names.contains(&"stays".to_owned()));
        site.go(router);
        for (client, name) in clients.iter().zip(&names) {
            if name == "gone" {
                client.send("lost");
                wait_until(&format!("{router} to be told"), || site.unreachable() == 1.0);
                site.pointsman.wait_received();
            }
            assert_eq!(client.backend("on"), "stays", "{router}");
            assert_eq!(client.backend("and on"), "stays", "{router}");
        }
        let metrics = site.pointsman.metrics();
        for (reason, count) in [("unreachable", 1.0), ("refused", 0.0), ("other", 0.0)] {
            assert_eq!(site.failures(&metrics, reason), count, "{router}: {reason}");
        }
        let outcomes = |record: &Record| -> Vec<String> {
            record.attempts().into_iter().map(|(_, outcome)| outcome).collect()
        };
        let (gone, stays) = (site.gone.address(), site.stays.address());
        let records = site.pointsman.stop();
        assert_eq!(records.len(), 2, "{router}");
        for record in records {
            assert_eq!(record.text("backend"), stays);
            match record.attempts()[0].0 == gone {
                true => assert_eq!(outcomes(&record), ["connected", "unreachable", "connected"]),
                false => assert_eq!(outcomes(&record), ["connected"]),
            }
        }
    }
}

#[test]
fn an_unreachable_backend_is_ejected_and_comes_back() {
    for (ip, router) in [WAYS[0], WAYS[3], WAYS[4], WAYS[7]] {
        let site = Site::open(ip, "health: off, outlier: { base_ejection: 300ms }");
        site.go(router);
        wait_until("the ejection", || {
            site.client().send("x");
            site.pointsman.state(&site.gone.address()) == "ejected"
        });
        assert!(site.unreachable() >= 3.0, "{}", site.unreachable());
        if router.starts_with("route add") {
            let family = if ip.contains(':') { "-6 " } else { "" };
            site.network.backend.ip(&format!("{family}{}", router.replace("add", "delete")));
        }
        have(&site.network, "add", ip);
        wait_until("it to be back", || {
            let client = site.client();
            client.insist("x") == "gone" && site.pointsman.state(&site.gone.address()) == "up"
        });
        site.pointsman.stop();
    }
}

#[test]
fn a_check_hears_of_it_too() {
    for (ip, router) in [WAYS[0], WAYS[3], WAYS[4], WAYS[7]] {
        let health = "health: { type: udp, send: x, expect: \"x\", interval: 200ms, \
                      timeout: 5s, rise: 1, fall: 1 }, panic_threshold: off";
        let site = Site::open(ip, health);
        let backend = || site.pointsman.backend(&site.gone.address());
        wait_until("it to be up", || backend()["state"] == "up");
        site.go(router);
        wait_until("it to be down", || backend()["state"] == "down");
        assert_eq!(backend()["last_check"]["reason"], "unreachable", "{router}");
        site.pointsman.stop();
    }
}
