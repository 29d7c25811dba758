//! Datagrams through both sockets, on loopback.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::bind::bind;
use super::*;

fn listening(address: &str) -> (Listening, u16) {
    let mut bound = bind(address.parse().unwrap(), false, 1, Some(1 << 20)).unwrap();
    (Listening::new(bound.fds.remove(0)).unwrap(), bound.local.port())
}

fn socket(address: &str) -> UdpSocket {
    let socket = UdpSocket::bind(address).unwrap();
    crate::sys::datagram::set_receive_buffer(&socket, 1 << 20).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    socket
}

fn wait(socket: impl AsFd) {
    let mut fds = [PollFd::new(&socket, PollFlags::IN)];
    let deadline = Timespec { tv_sec: 5, tv_nsec: 0 };
    assert_eq!(poll(&mut fds, Some(&deadline)), Ok(1), "nothing has come");
}

fn receive(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut bytes = vec![0; 1 << 16];
    let (len, from) = socket.recv_from(&mut bytes).unwrap();
    bytes.truncate(len);
    (bytes, from)
}

/// A datagram of this size, none like another.
fn datagram(index: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + index * 13 + at / 251) as u8).collect()
}

fn datagrams(sizes: &[usize]) -> Vec<Vec<u8>> {
    sizes.iter().enumerate().map(|(index, &len)| datagram(index, len)).collect()
}

/// Bursts: equal, mixed, empty, of the largest size, and more than a batch takes.
fn bursts() -> Vec<Vec<usize>> {
    vec![
        vec![0],
        vec![1],
        vec![0, 0, 1, 0],
        vec![65_507],
        vec![65_507, 65_507, 1],
        vec![1200; 30],
        vec![200; 100],
        [vec![1200; 10], vec![37], vec![1200; 3], vec![1201; 3], vec![5, 6, 0, 7]].concat(),
        vec![9000; 20],
        (0..60).map(|index| index * index % 97).collect(),
        vec![33_000, 32_000, 500],
    ]
}

/// Relays a client's bursts to a backend and the backend's to the client as a worker would.
fn check_relay(listen: &str, connect: &str, backend: &str, bursts: &[Vec<usize>], gso: bool) {
    let (mut listening, port) = listening(listen);
    let (client, backend) = (socket(&connect.replace("PORT", "0")), socket(backend));
    client.connect(connect.replace("PORT", &port.to_string())).unwrap();
    let mut upstream = Upstream::connect(backend.local_addr().unwrap()).unwrap();
    crate::sys::datagram::set_receive_buffer(&upstream, 1 << 20).unwrap();
    let mut batch = Batch::default();
    for (round, sizes) in bursts.iter().enumerate() {
        let sent = datagrams(sizes);
        send_burst(&client, &sent, gso);
        let mut count = 0;
        let mut from = None;
        while count < sent.len() {
            wait(&listening);
            for arrival in listening.receive(&mut batch).unwrap() {
                assert_eq!(arrival.client, client.local_addr().unwrap());
                upstream.send_train(&arrival.train).unwrap();
                count += arrival.train.count();
                from = Some((arrival.client, arrival.local));
            }
        }
        let got: Vec<_> = sent.iter().map(|_| receive(&backend)).collect();
        assert!(got.iter().map(|(bytes, _)| bytes).eq(&sent), "to the backend: {sizes:?}");

        backend.connect(got[0].1).unwrap();
        send_burst(&backend, &sent, gso);
        let (to, local) = from.unwrap();
        let mut count = 0;
        while count < sent.len() {
            wait(&upstream);
            for train in upstream.receive(&mut batch).unwrap() {
                listening.send_train(to, local, &train).unwrap();
                count += train.count();
            }
        }
        for expected in &sent {
            assert!(receive(&client).0 == *expected, "to the client: {sizes:?}");
        }
        if round == bursts.len() / 2 {
            upstream.expect_bursts();
        }
    }
}

/// Sends one by one, or with `gso` all of equal size in a row at once, so that they arrive as one.
fn send_burst(socket: &UdpSocket, datagrams: &[Vec<u8>], gso: bool) {
    use crate::sys::datagram::send::{How, send};
    if !gso {
        datagrams.iter().for_each(|bytes| assert_eq!(socket.send(bytes).unwrap(), bytes.len()));
        return;
    }
    for run in datagrams.chunk_by(|a, b| a.len() == b.len() && !a.is_empty()) {
        let most = (65_507 / run[0].len().max(1)).clamp(1, 64);
        for run in run.chunks(most) {
            let bytes = io::IoSlice::new(&run.concat()).to_vec();
            let segment = (run.len() > 1).then(|| run[0].len() as u16);
            send(socket, &[io::IoSlice::new(&bytes)], How { segment, ..How::default() }).unwrap();
        }
    }
}

#[test]
fn bursts_keep_boundaries_and_content() {
    for gso in [false, true] {
        // Every burst before and after `expect_bursts`.
        let twice = [bursts(), bursts()].concat();
        check_relay("127.0.0.1:0", "127.0.0.1:PORT", "127.0.0.1:0", &twice, gso);
        check_relay("0.0.0.0:0", "127.0.0.1:PORT", "[::1]:0", &twice, gso);
        check_relay("[::]:0", "127.0.0.1:PORT", "127.0.0.1:0", &twice, gso);
        check_relay("[::]:0", "[::1]:PORT", "127.0.0.1:0", &twice, gso);
        check_relay("[::1]:0", "[::1]:PORT", "[::1]:0", &[vec![65_527], vec![65_527, 3]], gso);
    }
}

#[test]
fn a_train_is_forwarded_whole() {
    let (mut listening, port) = listening("127.0.0.1:0");
    let (client, backend) = (socket("127.0.0.1:0"), socket("127.0.0.1:0"));
    client.connect(("127.0.0.1", port)).unwrap();
    let mut batch = Batch::default();
    // Put together by the kernel, or by us.
    for gso in [true, false] {
        send_burst(&client, &datagrams(&[1000; 20]), gso);
        // It learns to expect bursts.
        while listening.receive(&mut batch).is_ok() {}
        send_burst(&client, &datagrams(&[1000; 20]), gso);
        let arrivals: Vec<_> = listening.receive(&mut batch).unwrap().collect();
        assert_eq!(arrivals.len(), 1);
        let train = arrivals[0].train;
        assert_eq!((train.count(), train.bytes()), (20, 20_000));
        // The backend takes trains too: one system call, one message.
        crate::sys::datagram::set_gro(&backend, true).unwrap();
        let upstream = Upstream::connect(backend.local_addr().unwrap()).unwrap();
        upstream.send_train(&train).unwrap();
        assert_eq!(receive(&backend).0, datagrams(&[1000; 20]).concat());
    }
}

#[test]
fn a_reply_leaves_from_the_address_the_client_used() {
    for (listen, used) in [
        ("0.0.0.0:0", "127.0.0.1"),
        ("0.0.0.0:0", "127.0.0.2"),
        ("127.0.0.3:0", "127.0.0.3"),
        ("[::]:0", "127.0.0.1"),
        ("[::]:0", "127.0.0.2"),
        ("[::]:0", "::1"),
        ("[::1]:0", "::1"),
    ] {
        let (mut listening, port) = listening(listen);
        let used = SocketAddr::new(used.parse().unwrap(), port);
        let any = if used.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
        let client = socket(any);
        client.send_to(b"question", used).unwrap();
        let mut batch = Batch::default();
        let arrival = listening.receive(&mut batch).unwrap().next().unwrap();
        assert_eq!(arrival.client, client.local_addr().unwrap());
        let specific = !listen.starts_with("0.") && !listen.starts_with("[::]");
        assert_eq!(arrival.local, (!specific).then(|| used.ip()), "{listen}");
        listening.send_to(arrival.client, arrival.local, b"answer").unwrap();
        assert_eq!(receive(&client), (b"answer".to_vec(), used), "{listen}");
        listening.send_train(arrival.client, arrival.local, &arrival.train).unwrap();
        assert_eq!(receive(&client), (b"question".to_vec(), used), "{listen}");
    }
}

/// More than a system call takes, to clients of both families, one among them too large for it.
#[test]
fn replies_to_many_clients_are_sent_together() {
    for (listen, used) in [
        ("127.0.0.1:0", &["127.0.0.1"][..]),
        ("0.0.0.0:0", &["127.0.0.1", "127.0.0.2"]),
        ("[::]:0", &["127.0.0.1", "127.0.0.2", "::1"]),
    ] {
        let (listening, port) = listening(listen);
        for count in [0, 1, 2, 31, 32, 33, 100] {
            let too_large = vec![0; 65_528];
            let sent = datagrams(&(0..count).map(|index| index * 17).collect::<Vec<_>>());
            let addresses = || used.iter().map(|ip| ip.parse::<IpAddr>().unwrap()).cycle();
            let clients: Vec<_> = addresses()
                .take(count)
                .map(|ip| {
                    let client = socket(&SocketAddr::new(ip, 0).to_string());
                    client.connect((ip, port)).unwrap();
                    client
                })
                .collect();
            for broken in [None, Some(0), Some(1), Some(count / 2), count.checked_sub(1)] {
                let replies: Vec<_> = sent
                    .iter()
                    .zip(&clients)
                    .zip(addresses())
                    .enumerate()
                    .map(|(index, ((datagram, client), ip))| Reply {
                        client: client.local_addr().unwrap(),
                        local: Some(ip),
                        datagram: if broken == Some(index) { &too_large } else { datagram },
                    })
                    .collect();
                let outcomes = listening.send_many(&replies);
                assert_eq!(outcomes.len(), count);
                for (index, (client, outcome)) in clients.iter().zip(&outcomes).enumerate() {
                    match outcome {
                        Ok(()) => assert!(receive(client).0 == sent[index]),
                        Err(error) => assert_eq!(Trouble::of(error), Trouble::TooLarge),
                    }
                    assert_eq!(outcome.is_err(), broken == Some(index), "{index} of {count}");
                }
            }
        }
    }
}

/// Without it, a datagram larger than the path's MTU is lost, or fails.
#[test]
fn nothing_larger_than_the_mtu_is_refused() {
    let (v4, _) = listening("0.0.0.0:0");
    let (v6, _) = listening("[::]:0");
    let upstream = Upstream::connect("127.0.0.1:9".parse().unwrap()).unwrap();
    use rustix::net::sockopt::{Ipv4PathMtuDiscovery, ip_mtu_discover};
    for fd in [v4.as_fd(), v6.as_fd(), upstream.as_fd()] {
        assert_eq!(ip_mtu_discover(fd).unwrap(), Ipv4PathMtuDiscovery::DONT);
    }
}

#[test]
fn too_large_is_told() {
    let (listening, _) = listening("127.0.0.1:0");
    let client: SocketAddr = "127.0.0.1:9".parse().unwrap();
    let error = listening.send_to(client, None, &[0; 65_508]).unwrap_err();
    assert_eq!(Trouble::of(&error), Trouble::TooLarge);
    let upstream = Upstream::connect(client).unwrap();
    assert_eq!(Trouble::of(&upstream.send(&[0; 65_508]).unwrap_err()), Trouble::TooLarge);
    let mut fds = [PollFd::new(&upstream, PollFlags::IN)];
    assert_eq!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0), "still told");
}

#[test]
fn nothing_to_read_is_told() {
    let mut batch = Batch::default();
    let (mut listening, _) = listening("127.0.0.1:0");
    let error = listening.receive(&mut batch).map(drop).unwrap_err();
    assert_eq!(Trouble::of(&error), Trouble::TryAgain);
    let mut upstream = Upstream::connect("127.0.0.1:9".parse().unwrap()).unwrap();
    for _ in 0..2 {
        let error = upstream.receive(&mut batch).map(drop).unwrap_err();
        assert_eq!(Trouble::of(&error), Trouble::TryAgain);
        upstream.expect_bursts();
    }
}

#[test]
fn a_refusal_is_told_once_and_the_socket_works_on() {
    for bursts in [false, true] {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let backend = socket(address);
            let address = backend.local_addr().unwrap();
            drop(backend);
            let mut upstream = Upstream::connect(address).unwrap();
            if bursts {
                upstream.expect_bursts();
            }
            let mut batch = Batch::default();
            // By the next send, or by the next receive. It is an event to wait for.
            upstream.send(b"a").unwrap();
            wait(&upstream);
            assert_eq!(Trouble::of(&upstream.send(b"b").unwrap_err()), Trouble::Refused);
            upstream.send(b"c").unwrap();
            wait(&upstream);
            let error = upstream.receive(&mut batch).map(drop).unwrap_err();
            assert_eq!(Trouble::of(&error), Trouble::Refused);
            let error = upstream.receive(&mut batch).map(drop).unwrap_err();
            assert_eq!(Trouble::of(&error), Trouble::TryAgain);
            // And none any more.
            let mut fds = [PollFd::new(&upstream, PollFlags::IN)];
            assert_eq!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0));

            let backend = socket(&address.to_string());
            upstream.send(b"e").unwrap();
            let (bytes, from) = receive(&backend);
            assert_eq!(bytes, b"e");
            backend.send_to(b"f", from).unwrap();
            wait(&upstream);
            let train = upstream.receive(&mut batch).unwrap().next().unwrap();
            assert!(train.datagrams().eq([b"f"]));
        }
    }
}

#[test]
fn a_client_that_is_gone_troubles_nobody() {
    let (mut listening, port) = listening("127.0.0.1:0");
    let gone = socket("127.0.0.1:0").local_addr().unwrap();
    for _ in 0..3 {
        listening.send_to(gone, None, b"a").unwrap();
    }
    let client = socket("127.0.0.1:0");
    client.send_to(b"b", ("127.0.0.1", port)).unwrap();
    let mut batch = Batch::default();
    let arrival = listening.receive(&mut batch).unwrap().next().unwrap();
    assert!(arrival.train.datagrams().eq([b"b"]));
    assert_eq!(listening.drops().unwrap(), 0);
}

#[test]
fn no_way_to_a_backend_is_told() {
    let broadcast: SocketAddr = "255.255.255.255:9".parse().unwrap();
    let error = Upstream::connect(broadcast).unwrap_err();
    assert_eq!(Trouble::of(&error), Trouble::Unreachable);
}
