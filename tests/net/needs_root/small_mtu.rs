//! Paths that take less than an Ethernet: what is larger passes in fragments, both ways.

use std::time::Duration;

use crate::harness::{
    LARGEST, Pointsman, UdpBackend, UdpClient, check_mirrored, datagrams, one_udp_listener,
    wait_until,
};
use crate::namespace::{Namespace, Network};

/// Where the path is narrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Narrow {
    /// At the link to the backend.
    Backend,
    /// At the link to the client.
    Client,
    /// Beyond a router, between that and the backend.
    Beyond,
}

/// A client, pointsman, a router and a backend in a row.
struct Path {
    network: Network,
    /// Has `eth0`, 10.3.0.2 and fd03::2, behind the router that `network.backend` is.
    far: Namespace,
}

impl Path {
    fn new(narrow: Narrow, mtu: u32) -> Self {
        let network = Network::of_both_families();
        let far = Namespace::new();
        let Network { client, middle, backend: router } = &network;
        router.cable("far", "10.3.0.1/24", &far, "10.3.0.2/24");
        router.ip("address add fd03::1/64 dev far nodad");
        far.ip("address add fd03::2/64 dev eth0 nodad");
        router.set("net/ipv4/ip_forward", "1");
        router.set("net/ipv6/conf/all/forwarding", "1");
        middle.ip("route add 10.3.0.0/24 via 10.2.0.2");
        middle.ip("-6 route add fd03::/64 via fd02::2");
        far.ip("route add default via 10.3.0.1");
        far.ip("-6 route add default via fd03::1");
        // The peers leave it to routers as well.
        client.set("net/ipv4/ip_no_pmtu_disc", "1");
        far.set("net/ipv4/ip_no_pmtu_disc", "1");
        let ends = match narrow {
            Narrow::Client => [(client, "eth0"), (middle, "left")],
            Narrow::Backend => [(middle, "right"), (router, "eth0")],
            Narrow::Beyond => [(router, "far"), (&far, "eth0")],
        };
        for (end, device) in ends {
            end.ip(&format!("link set {device} mtu {mtu}"));
        }
        Path { network, far }
    }

    /// Fragments made by pointsman's machine and the router.
    fn fragments(&self, ipv6: bool) -> u64 {
        let name = if ipv6 { "Ip6FragCreates" } else { "Ip FragCreates" };
        self.network.middle.counter(name) + self.network.backend.counter(name)
    }

    fn client(&self, pointsman: &Pointsman, ipv6: bool) -> UdpClient {
        let edge = pointsman.address("edge");
        let own = if ipv6 { "[fd01::2]:0" } else { "10.1.0.2:0" };
        self.network.client.within(|| UdpClient::from(own, &edge))
    }
}

/// Sizes around what the narrow link takes whole, what only the others do, and what none does, in
/// rows that go as one.
fn sizes(mtu: usize, ipv6: bool) -> Vec<usize> {
    let whole = mtu - if ipv6 { 48 } else { 28 };
    [
        vec![1, 0],
        vec![whole; 30],
        vec![whole + 1; 30],
        vec![1400; 50],
        vec![700; 20],
        vec![1, 9000, 20_000, LARGEST],
    ]
    .concat()
}

fn check(narrow: Narrow, mtu: u32, ipv6: bool) {
    let path = Path::new(narrow, mtu);
    let at = if ipv6 { "[fd03::2]:0" } else { "10.3.0.2:0" };
    let backend = path.far.within(|| UdpBackend::mirror_at(at));
    let bind = if ipv6 { "[fd01::1]:0" } else { "10.1.0.1:0" };
    let yaml = one_udp_listener("udp: { receive_buffer: 4MiB }", &[&backend], "outlier: off");
    let yaml = yaml.replace("127.0.0.1:0", bind) + "shutdown: { grace: 0s }\n";
    let pointsman = path.network.middle.start(&yaml);
    if ipv6 {
        // Routers do not fragment it: the first that is too large is lost, and tells.
        let first = path.client(&pointsman, ipv6);
        wait_until("the path's MTU to be known", || {
            first.send([7; 1400]);
            first.try_receive(Duration::from_millis(100)).is_some()
        });
    }
    let before = path.fragments(ipv6);
    let all = datagrams(&sizes(mtu as usize, ipv6));
    let mut passed = 0.0;
    // What the client sends as one has to fit into its own link.
    for segments in [false, narrow != Narrow::Client] {
        let client = path.client(&pointsman, ipv6);
        check_mirrored(&client, &all, segments, false);
        passed += all.len() as f64;
        assert_eq!(client.try_receive(Duration::from_millis(10)), None);
    }
    let fragments = path.fragments(ipv6) - before;
    assert!(fragments > 200, "{narrow:?} {mtu} {ipv6}: {fragments} fragments");
    let labels = [("listener", "edge"), ("direction", "out")];
    wait_until("all to be counted", || {
        pointsman.metrics().value("pointsman_udp_datagrams_total", &labels) >= passed
    });
    let metrics = pointsman.metrics();
    assert_eq!(metrics.sum("pointsman_udp_dropped_total", ("listener", "edge")), 0.0);
    pointsman.stop();
}

#[test]
fn a_link_with_a_small_mtu_at_either_side() {
    for ipv6 in [false, true] {
        check(Narrow::Backend, 1280, ipv6);
        check(Narrow::Client, 1280, ipv6);
    }
    // The least that hosts have to put together.
    check(Narrow::Backend, 576, false);
    check(Narrow::Client, 576, false);
}

#[test]
fn a_path_that_is_narrow_further_on() {
    check(Narrow::Beyond, 576, false);
    check(Narrow::Beyond, 1280, false);
    check(Narrow::Beyond, 1280, true);
}
