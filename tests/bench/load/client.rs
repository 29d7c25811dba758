//! The clients. All are on one thread, but for those of bulk.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroU64;
use std::slice;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::set_current_timer_slack;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::{ANSWER_BYTES, BULK, request};

/// At a time, where nothing else is asked for.
pub const CLIENTS: usize = 64;
/// Fits into a core's cache.
const BULK_BYTES: usize = 256 * 1024;
/// Of waits in each of these the 99th percentile is taken, and the median of those: a machine that
/// holds all of it up now and then for more than a hundredth of the time would else be measured.
const WINDOW: Duration = Duration::from_millis(100);
/// A client is given up when it hears nothing for so long.
const PATIENCE: Duration = Duration::from_secs(10);

/// Requests of so many clients, over and over, in turn.
pub struct Requests {
    address: SocketAddr,
    clients: usize,
    /// What they send, in turn.
    flights: Vec<Vec<u8>>,
    /// Whether a connection stays for the client's next request. Otherwise the answer ends with it.
    kept: bool,
}

#[derive(Default)]
struct Client {
    stream: Option<TcpStream>,
    /// When its request should have been sent, since the start: on time or late, that is when the
    /// wait for the answer begins.
    due: Duration,
    /// Bytes of the answer that have not come.
    missing: usize,
}

impl Requests {
    pub fn new(port: u16, clients: usize, flights: Vec<Vec<u8>>, kept: bool) -> Self {
        Requests { address: local(port), clients, flights, kept }
    }

    /// Sends requests for so long, each as soon as a client is free or, with a `rate`, when its time
    /// has come; prints how many were answered, and how long that took. Kept connections are there
    /// before the time begins.
    pub fn repeat(&self, length: Duration, rate: Option<f64>) {
        set_current_timer_slack(NonZeroU64::new(1)).expect("a thread may");
        let client = |_| if self.kept { self.connected() } else { Client::default() };
        let mut free: VecDeque<Client> = (0..self.clients).map(client).collect();
        let (mut busy, mut latencies) = (Vec::new(), Vec::new());
        let (mut sent, start) = (0, Instant::now());
        loop {
            let now = start.elapsed();
            let next = rate.map_or(now, |rate| Duration::from_secs_f64(sent as f64 / rate));
            if next < length
                && next <= now
                && let Some(mut client) = free.pop_front()
            {
                self.send(&mut client, sent, next);
                (sent, _) = (sent + 1, busy.push(client));
                continue;
            }
            if busy.is_empty() && next >= length {
                break;
            }
            let alarm = (next < length && !free.is_empty()).then(|| next - now);
            for index in ready(&busy, alarm).into_iter().rev() {
                if self.answered(&mut busy[index]) {
                    let client = busy.swap_remove(index);
                    latencies.push((client.due, start.elapsed().saturating_sub(client.due)));
                    free.push_back(client);
                }
            }
        }
        print(&latencies, start.elapsed());
    }

    /// One that has had an answer, so that nothing about its connection is still under way.
    fn connected(&self) -> Client {
        let mut client = Client::default();
        self.send(&mut client, 0, Duration::ZERO);
        while !self.answered(&mut client) {
            ready(slice::from_ref(&client), None);
        }
        client
    }

    fn send(&self, client: &mut Client, number: usize, due: Duration) {
        (client.due, client.missing) = (due, ANSWER_BYTES);
        let stream = client.stream.get_or_insert_with(|| connect(self.address));
        let flight = &self.flights[number % self.flights.len()];
        stream.write_all(flight).expect("a request fits into an empty buffer");
    }

    /// Reads once; whether the answer is complete and the client free again.
    fn answered(&self, client: &mut Client) -> bool {
        let stream = client.stream.as_mut().expect("a busy client is connected");
        let mut bytes = [0; 2 * ANSWER_BYTES];
        match stream.read(&mut bytes) {
            Ok(0) if !self.kept && client.missing == 0 => client.stream = None,
            Ok(0) => panic!("closed with {} bytes of the answer missing", client.missing),
            Ok(read) => {
                client.missing = client.missing.checked_sub(read).expect("no more than the answer");
                return self.kept && client.missing == 0;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(error) => panic!("reading the answer: {error}"),
        }
        true
    }
}

/// Waits for any of the clients, or until the alarm; those that can read.
fn ready(clients: &[Client], alarm: Option<Duration>) -> Vec<usize> {
    let streams = clients.iter().map(|client| client.stream.as_ref().expect("it is connected"));
    let mut fds: Vec<_> = streams.map(|stream| PollFd::new(stream, PollFlags::IN)).collect();
    let timeout = Timespec::try_from(alarm.unwrap_or(PATIENCE)).expect("a short time");
    let count = poll(&mut fds, Some(&timeout)).expect("poll");
    assert!(count > 0 || alarm.is_some(), "no answer within {PATIENCE:?}");
    (0..fds.len()).filter(|&index| !fds[index].revents().is_empty()).collect()
}

/// Prints what is known of requests: when each was due, and how long it waited from then.
fn print(latencies: &[(Duration, Duration)], elapsed: Duration) {
    let p50 = quantile(latencies.iter().map(|(_, wait)| *wait), 0.5);
    let window = |(due, _): &(Duration, Duration)| due.as_nanos() / WINDOW.as_nanos();
    let mut windows: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for latency in latencies {
        windows.entry(window(latency)).or_default().push(latency.1);
    }
    let p99 = windows.into_values().map(|waits| quantile(waits.into_iter(), 0.99));
    let (p50, p99) = (p50.as_nanos() as f64 / 1e3, quantile(p99, 0.5).as_nanos() as f64 / 1e3);
    let (count, seconds) = (latencies.len(), elapsed.as_secs_f64());
    println!(r#"{{"count": {count}, "seconds": {seconds}, "p50_us": {p50}, "p99_us": {p99}}}"#);
}

fn quantile(waits: impl Iterator<Item = Duration>, quantile: f64) -> Duration {
    let mut waits: Vec<_> = waits.collect();
    waits.sort_unstable();
    waits[((waits.len() - 1) as f64 * quantile).round() as usize]
}

/// First flights of clients that ask for `shop-0.example.com` to one of so many names.
pub fn hellos(names: usize) -> Vec<Vec<u8>> {
    let config = ClientConfig::builder().with_root_certificates(RootCertStore::empty());
    let config = Arc::new(config.with_no_client_auth());
    let hello = |number| {
        let name = format!("shop-{number}.example.com").try_into().expect("a name");
        let mut client = ClientConnection::new(config.clone(), name).expect("a client");
        let mut flight = Vec::new();
        client.write_tls(&mut flight).expect("a vector takes it");
        flight
    };
    (0..names).map(hello).collect()
}

/// Receives on so many streams, a thread each, for so long; prints the bytes.
pub fn receive(port: u16, length: Duration, streams: usize) {
    let start = Instant::now();
    let receive = move || -> io::Result<u64> {
        let mut stream = TcpStream::connect(local(port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(&request(BULK))?;
        let (mut buffer, mut bytes) = (vec![0; BULK_BYTES], 0);
        while start.elapsed() < length {
            let read = stream.read(&mut buffer)?;
            assert!(read > 0, "the backend never ends");
            bytes += read as u64;
        }
        Ok(bytes)
    };
    let threads: Vec<_> = (0..streams).map(|_| std::thread::spawn(receive)).collect();
    let bytes = threads.into_iter().map(|thread| thread.join().expect("it").expect("bytes"));
    let bytes: u64 = bytes.sum();
    println!(r#"{{"bytes": {bytes}, "seconds": {}}}"#, start.elapsed().as_secs_f64());
}

/// Connects so many clients, and keeps them until the input ends; all must be connected then.
pub fn stay(port: u16, connections: usize) {
    let mut streams: Vec<_> = (0..connections).map(|_| connect(local(port))).collect();
    println!(r#"{{"count": {connections}}}"#);
    io::stdin().read_to_end(&mut Vec::new()).expect("an input that ends");
    for stream in &mut streams {
        let waits = stream.read(&mut [0]).is_err_and(|e| e.kind() == ErrorKind::WouldBlock);
        assert!(waits, "a connection has ended");
    }
}

fn local(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

/// Connects, which takes no time on a loopback.
fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connect");
    stream.set_nodelay(true).expect("an option of TCP");
    stream.set_nonblocking(true).expect("an option of sockets");
    stream
}
