//! Datagrams of every size, and bursts of them: boundaries, content and order stay.

use std::time::Duration;

use rustix::process::Signal;

use crate::harness::{
    LARGEST, Metrics, Pointsman, UdpBackend, UdpClient, check_mirrored, datagram, datagrams,
    one_udp_listener, wait_for, wait_until,
};

/// Room for what is on its way at a time.
const BUFFER: &str = "udp: { receive_buffer: 4MiB }";

#[test]
fn bursts_keep_their_boundaries_content_and_order() {
    let backend = UdpBackend::mirror();
    let yaml = one_udp_listener(BUFFER, &[&backend], "");
    let pointsman = Pointsman::start(&format!("workers: 2\n{yaml}"));
    let edge = pointsman.address("edge");
    let mut random = fastrand::Rng::with_seed(7);
    let mixed: Vec<usize> = (0..700)
        .flat_map(|_| {
            let size = [0, 1, 37, 100, 1200, 1201, 1472, 9000][random.usize(0..8)];
            vec![size; random.usize(1..6)]
        })
        .collect();
    let total: usize = mixed.len() + 300 + 5 + 200;
    for segments in [false, true] {
        let client = UdpClient::to(&edge);
        check_mirrored(&client, &datagrams(&mixed), segments, true);
        check_mirrored(&client, &datagrams(&[1200; 300]), segments, true);
        check_mirrored(&client, &datagrams(&[0, LARGEST, 0, LARGEST, LARGEST]), segments, true);
        let falling: Vec<usize> = (0..200).map(|index| 400 - index).collect();
        check_mirrored(&client, &datagrams(&falling), segments, true);
    }
    for direction in ["in", "out"] {
        let labels = [("listener", "edge"), ("direction", direction)];
        let passed = |metrics: &Metrics| metrics.value("pointsman_udp_datagrams_total", &labels);
        pointsman.expect_count(2.0 * total as f64, passed);
    }
    let metrics = pointsman.metrics();
    assert_eq!(metrics.sum("pointsman_udp_dropped_total", ("listener", "edge")), 0.0);
}

/// What one question brings: bursts of the backend alone.
#[test]
fn bursts_of_a_backend_come_whole() {
    let sizes: Vec<usize> = [vec![1200; 20], vec![500], vec![0, 0, 3], vec![700; 9]].concat();
    let answers = datagrams(&sizes);
    let backend = UdpBackend::serving("127.0.0.1:0", false, {
        let answers = answers.clone();
        move |socket, _, from| {
            for bytes in &answers {
                assert_eq!(socket.send_to(bytes, from).unwrap(), bytes.len());
            }
        }
    });
    let pointsman = Pointsman::start(&one_udp_listener(BUFFER, &[&backend], ""));
    let client = UdpClient::to(&pointsman.address("edge"));
    // From the first on as one by one, then as bursts.
    for _ in 0..50 {
        client.send("more");
        for (index, expected) in answers.iter().enumerate() {
            assert!(client.receive() == *expected, "answer {index}");
        }
    }
    assert_eq!(client.try_receive(Duration::from_millis(50)), None);
}

/// Many clients at a time, whose datagrams come in the same batches.
#[test]
fn bursts_of_many_clients_are_not_mixed_up() {
    let backend = UdpBackend::mirror();
    let yaml = one_udp_listener(BUFFER, &[&backend], "");
    let pointsman = Pointsman::start(&format!("workers: 2\n{yaml}"));
    let edge = pointsman.address("edge");
    let clients: Vec<_> = (0..20).map(|_| UdpClient::to(&edge)).collect();
    for round in 0..20 {
        for part in 0..5 {
            for (number, client) in clients.iter().enumerate() {
                client.send(datagram(number * 1000 + round * 5 + part, 300));
            }
        }
        for (number, client) in clients.iter().enumerate() {
            for part in 0..5 {
                assert!(client.receive() == datagram(number * 1000 + round * 5 + part, 300));
            }
        }
    }
    assert_eq!(pointsman.metrics().active("edge"), 20.0);
}

/// Answers that are all there at once, of listeners of both families, one of them too large for its
/// client.
#[test]
fn answers_that_come_together_reach_their_clients() {
    let backend = UdpBackend::serving("[::1]:0", true, |_, _, _| {});
    let yaml = format!(
        "workers: 1
listeners:
  four: {{ bind: '127.0.0.1:0', protocol: udp, pool: pool }}
  six: {{ bind: '[::1]:0', protocol: udp, pool: pool }}
pools:
  pool: {{ backends: ['{}'] }}
",
        backend.address()
    );
    let pointsman = Pointsman::start(&yaml);
    let clients: Vec<_> = ["four", "six", "four", "four", "six"]
        .into_iter()
        .cycle()
        .take(90)
        .map(|name| UdpClient::to(&pointsman.address(name)))
        .collect();
    clients.iter().enumerate().for_each(|(index, client)| client.send(index.to_be_bytes()));
    wait_until("the questions", || backend.count() == clients.len());
    let questions = backend.received();
    for round in 0..20 {
        // It is an IPv4 client.
        let too_large = round * 5 % clients.len();
        let answer = |index: usize| match index == too_large && round % 2 == 1 {
            true => vec![0; LARGEST + 20],
            false => datagram(index * 100 + round, index * 13 % 1500),
        };
        pointsman.freeze();
        for question in &questions {
            let index = usize::from_be_bytes(question.bytes.as_slice().try_into().unwrap());
            backend.send(&answer(index), question.from);
        }
        pointsman.signal(Signal::CONT);
        for (index, client) in clients.iter().enumerate() {
            if answer(index).len() <= LARGEST {
                assert!(client.receive() == answer(index), "answer {index} of round {round}");
            }
        }
    }
    let lost =
        |metrics: &Metrics, name| metrics.sum("pointsman_udp_dropped_total", ("listener", name));
    pointsman.expect_count(10.0, |metrics| lost(metrics, "four"));
    pointsman.expect_count(20.0 * clients.len() as f64 - 10.0, |metrics| {
        let sent = |name| {
            let labels = [("listener", name), ("direction", "out")];
            metrics.value("pointsman_udp_datagrams_total", &labels)
        };
        sent("four") + sent("six")
    });
    assert_eq!(lost(&pointsman.metrics(), "six"), 0.0);
}

/// More than IPv4 carries can come by IPv6: it is dropped, and counted, and nothing else is.
#[test]
fn what_is_too_large_for_the_other_side_is_counted() {
    let backend = UdpBackend::mirror();
    let yaml = one_udp_listener("", &[&backend], "").replace("127.0.0.1:0", "[::1]:0");
    let pointsman = Pointsman::start(&yaml);
    let client = UdpClient::to(&pointsman.address("edge"));
    client.send("before");
    assert_eq!(client.receive(), b"before");
    client.send(vec![1; LARGEST + 20]);
    client.send("after");
    assert_eq!(client.receive(), b"after");
    let labels = [("listener", "edge"), ("reason", "too_large")];
    assert_eq!(pointsman.metrics().value("pointsman_udp_dropped_total", &labels), 1.0);
}

#[test]
fn drops_of_the_kernel_are_counted() {
    const SENT: usize = 3000;
    let backend = UdpBackend::sink();
    let yaml = one_udp_listener("udp: { receive_buffer: 64KiB }", &[&backend], "");
    let pointsman = Pointsman::start(&format!("workers: 2\n{yaml}"));
    let client = UdpClient::to(&pointsman.address("edge"));
    pointsman.freeze();
    (0..SENT).for_each(|index| client.send(datagram(index, 200)));
    pointsman.signal(Signal::CONT);
    pointsman.wait_received();
    let dropped = wait_for("the drops to be counted", || {
        let labels = [("listener", "edge"), ("reason", "receive_buffer")];
        let dropped = pointsman.metrics().value("pointsman_udp_dropped_total", &labels);
        (dropped > 0.0).then_some(dropped as usize)
    });
    wait_until("the rest", || backend.count() + dropped == SENT);
    let labels = [("listener", "edge"), ("direction", "in")];
    let passed = |metrics: &Metrics| metrics.value("pointsman_udp_datagrams_total", &labels);
    pointsman.expect_count((SENT - dropped) as f64, passed);
    assert!(dropped > SENT / 4 && dropped < SENT, "{dropped}");
}
