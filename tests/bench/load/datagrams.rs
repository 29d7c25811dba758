//! Datagrams: flows with one in flight each, and one flow whose answers come in bursts.

use std::io::{ErrorKind, IoSlice};
use std::net::UdpSocket;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use pointsman::sys::datagram::send::{How, send};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::set_current_timer_slack;

use super::{BULK, request};

/// What a question and its answer have.
const BYTES: usize = 200;
/// A burst: as many datagrams as fit into one of the kernel's.
const BURST: usize = 48;
const BURST_BYTES: usize = 1200;
/// After so long a datagram counts as lost, and the next question is asked.
const LOST: Duration = Duration::from_millis(100);
/// More losses are no measurement: one in so many questions.
const LOSSES: u64 = 1000;

/// Answers on this socket until the process is killed.
pub fn serve(socket: &UdpSocket) {
    let mut bytes = [0; 2048];
    let burst = vec![b'.'; BURST * BURST_BYTES];
    loop {
        let (received, client) = socket.recv_from(&mut bytes).expect("a question");
        if bytes[..received].first() == Some(&BULK) {
            let segment = u16::try_from(BURST_BYTES).ok();
            let how = How { to: Some(client), segment, ..How::default() };
            // What finds no room is lost, and counted by who waits for it.
            let _ = send(socket, &[IoSlice::new(&burst)], how);
        } else {
            let _ = socket.send_to(&bytes[..received], client);
        }
    }
}

/// Asks on so many sockets, each as soon as it has its answer; prints how many datagrams went by,
/// both ways together.
pub fn ask(port: u16, length: Duration, flows: usize) {
    let question = vec![b'.'; BYTES];
    run(port, length, flows, &question, 1);
}

/// Asks for bursts on one socket.
pub fn ask_for_bursts(port: u16, length: Duration) {
    run(port, length, 1, &request(BULK), BURST);
}

struct Flow {
    socket: UdpSocket,
    asked: Instant,
    missing: usize,
}

fn run(port: u16, length: Duration, flows: usize, question: &[u8], answers: usize) {
    set_current_timer_slack(NonZeroU64::new(1)).expect("a thread may");
    let start = Instant::now();
    let open = |_| {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket.connect(("127.0.0.1", port)).expect("a port");
        socket.set_nonblocking(true).expect("an option of sockets");
        Flow { socket, asked: start, missing: 0 }
    };
    let mut flows: Vec<Flow> = (0..flows).map(open).collect();
    let (mut asked, mut answered, mut lost) = (0_u64, 0_u64, 0_u64);
    let ask = |flow: &mut Flow| {
        (flow.asked, flow.missing) = (Instant::now(), answers);
        // Refused while the balancer is starting.
        let _ = flow.socket.send(question);
    };
    flows.iter_mut().for_each(ask);
    while start.elapsed() < length {
        wait(&flows);
        for flow in &mut flows {
            answered += receive(flow);
            let late = flow.missing > 0 && flow.asked.elapsed() > LOST;
            lost += u64::from(late);
            if flow.missing == 0 || late {
                asked += 1;
                ask(flow);
            }
        }
    }
    let (count, seconds) = (asked + answered, start.elapsed().as_secs_f64());
    assert!(answered > 0 && lost <= asked / LOSSES, "{lost} of {asked} questions unanswered");
    println!(r#"{{"count": {count}, "seconds": {seconds}, "lost": {lost}}}"#);
}

/// Takes what has come; how much that is.
fn receive(flow: &mut Flow) -> u64 {
    let mut bytes = [0; 2048];
    let mut count = 0;
    while flow.missing > 0 {
        match flow.socket.recv(&mut bytes) {
            Ok(_) => (count, flow.missing) = (count + 1, flow.missing - 1),
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            // Nobody listens yet.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => break,
            Err(error) => panic!("receiving: {error}"),
        }
    }
    count
}

fn wait(flows: &[Flow]) {
    let mut fds: Vec<_> =
        flows.iter().map(|flow| PollFd::new(&flow.socket, PollFlags::IN)).collect();
    let timeout = Timespec::try_from(LOST).expect("a short time");
    poll(&mut fds, Some(&timeout)).expect("poll");
}
