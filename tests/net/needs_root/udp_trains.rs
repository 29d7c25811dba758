//! Datagrams in a row that the kernel does not take as one, since they are larger than the link to
//! the backend takes, and a backend that refuses them on the way.

use std::io::IoSlice;

use pointsman::sys::datagram::send::{How, send};

use crate::harness::{
    Metrics, Pointsman, UdpBackend, UdpClient, datagrams, one_udp_listener, wait_until,
};
use crate::namespace::Network;

const COUNT: usize = 20;
const SIZE: u16 = 1300;

/// Backends on pointsman's own host, so that an ICMP message comes before the next datagram goes.
struct Site {
    pointsman: Pointsman,
    backends: Vec<UdpBackend>,
    network: Network,
}

impl Site {
    fn open(backends: usize) -> Self {
        let network = Network::new();
        network.middle.ip("link set lo mtu 1280");
        network.middle.set("net/ipv4/icmp_ratelimit", "0");
        let echo = |_| {
            UdpBackend::serving("127.0.0.1:0", true, |socket, bytes, from| {
                socket.send_to(bytes, from).unwrap();
            })
        };
        let backends: Vec<_> = network.middle.within(|| (0..backends).map(echo).collect());
        let all: Vec<_> = backends.iter().collect();
        let yaml = one_udp_listener("", &all, "balance: round_robin, outlier: off");
        let yaml = yaml.replace("\"127.0.0.1:0\"", "\"10.1.0.1:0\"");
        let pointsman = network.middle.start(&(yaml + "workers: 1\nshutdown: { grace: 0s }\n"));
        Site { pointsman, backends, network }
    }

    /// A client whose flow is on the first backend, which refuses everything from now on.
    fn client(&self) -> UdpClient {
        let edge = self.pointsman.address("edge");
        let client = || self.network.client.within(|| UdpClient::from("10.1.0.2:0", &edge));
        let clients: Vec<_> = self.backends.iter().map(|_| client()).collect();
        let ask = |client: &UdpClient| {
            let before = self.backends[0].count();
            client.ask("ask");
            self.backends[0].received().len() > before
        };
        let client = clients.into_iter().find(ask).expect("each backend has a turn");
        self.backends[0].close();
        client
    }

    fn passed(&self) -> f64 {
        let labels = [("listener", "edge"), ("direction", "in")];
        self.pointsman.metrics().value("pointsman_udp_datagrams_total", &labels)
    }

    fn refusals_of(&self, metrics: &Metrics) -> f64 {
        let backend = self.backends[0].address();
        let labels = [("pool", "pool"), ("backend", &*backend), ("reason", "refused")];
        metrics.value("pointsman_backend_connect_failures_total", &labels)
    }
}

/// Sends all as one, which the client's link takes.
fn send_train(client: &UdpClient) -> Vec<Vec<u8>> {
    let train = datagrams(&[usize::from(SIZE); COUNT]);
    let how = How { segment: Some(SIZE), ..How::default() };
    send(client.socket(), &[IoSlice::new(&train.concat())], how).unwrap();
    train
}

#[test]
fn what_follows_a_refused_datagram_goes_to_another_backend() {
    let site = Site::open(2);
    let client = site.client();
    let (before, asked) = (site.passed(), site.backends[1].received().len());
    let train = send_train(&client);
    // The first one is lost, as a single one would be.
    wait_until("the rest to get there", || site.backends[1].received().len() - asked == COUNT - 1);
    let received = site.backends[1].received();
    let received: Vec<_> = received[asked..].iter().map(|received| &received.bytes).collect();
    assert!(received.into_iter().eq(&train[1..]));
    wait_until("all to be counted", || site.passed() - before == COUNT as f64);
    let metrics = site.pointsman.metrics();
    assert_eq!(metrics.sum("pointsman_udp_dropped_total", ("listener", "edge")), 0.0);
    assert_eq!(site.refusals_of(&metrics), 1.0);
    (1..COUNT).for_each(|index| assert!(client.receive() == train[index]));
}

/// As single ones are: what is told at one is of the one before, so it is sent again.
#[test]
fn each_datagram_that_the_only_backend_refuses_is_told() {
    let site = Site::open(1);
    let client = site.client();
    let before = site.passed();
    send_train(&client);
    wait_until("all to be counted", || site.passed() - before == COUNT as f64);
    site.pointsman.expect_count(COUNT as f64, |metrics| site.refusals_of(metrics));
    let metrics = site.pointsman.metrics();
    assert_eq!(metrics.sum("pointsman_udp_dropped_total", ("listener", "edge")), 0.0);
}
