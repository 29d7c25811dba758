//! A backend dies under load, with real processes: three nginx on a loopback, twenty clients, a
//! new connection a request, SIGKILL. What clients see of it, and for how long, is what checks and
//! retries are for. The README has the figures.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::harness::{
    HeldPort, Nginx, PATIENCE, Pointsman, Record, one_listener, pass, wait_until,
};

const CLIENTS: usize = 20;
const MS: Duration = Duration::from_millis(1);

/// An nginx on a port that stays its own when it is dead.
struct Server {
    nginx: Nginx,
    port: HeldPort,
}

impl Server {
    fn start(name: &str) -> Self {
        let port = HeldPort::new("127.0.0.1");
        let listen = format!("listen unix:DIR/socket; listen {} backlog=4096", port.address());
        let location = format!("location / {{ return 200 {name}; }}");
        Server { nginx: Nginx::serving(&format!("{listen}; {location}"), |_| ()), port }
    }

    fn address(&self) -> String {
        self.port.address().to_string()
    }
}

/// A request, as its client saw it.
struct Request {
    client: SocketAddr,
    begun: Instant,
    ended: Instant,
    /// Who answered.
    answer: Result<String, io::Error>,
}

fn request(edge: &str) -> Request {
    let begun = Instant::now();
    let mut stream = TcpStream::connect(edge).expect("pointsman accepts");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let client = stream.local_addr().unwrap();
    let answer = ask(&mut stream);
    Request { client, begun, ended: Instant::now(), answer }
}

fn ask(stream: &mut TcpStream) -> io::Result<String> {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let whole = answer.starts_with("HTTP/1.1 200 OK\r\n");
    match answer.split_once("\r\n\r\n") {
        Some((_, name)) if whole && !name.is_empty() => Ok(name.to_owned()),
        _ => Err(io::Error::other(format!("instead of an answer: {answer:?}"))),
    }
}

/// Clients that send requests until they are told to stop.
struct Clients {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    count: AtomicUsize,
    requests: Mutex<Vec<Request>>,
}

impl Clients {
    fn start(edge: &str) -> Self {
        let shared = Arc::new(Shared::default());
        let client = |_| {
            let (edge, shared) = (edge.to_owned(), shared.clone());
            std::thread::spawn(move || {
                let mut requests = Vec::new();
                while !shared.stop.load(SeqCst) {
                    requests.push(request(&edge));
                    shared.count.fetch_add(1, SeqCst);
                }
                shared.requests.lock().unwrap().extend(requests);
            })
        };
        let threads = (0..CLIENTS).map(client).collect();
        Clients { shared, threads }
    }

    fn count(&self) -> usize {
        self.shared.count.load(SeqCst)
    }

    fn wait_for(&self, requests: usize) {
        wait_until("requests", || self.count() >= requests);
    }

    /// All requests, in the order in which they began.
    fn stop(self) -> Vec<Request> {
        self.shared.stop.store(true, SeqCst);
        self.threads.into_iter().for_each(|thread| thread.join().expect("a client"));
        let mut requests = std::mem::take(&mut *self.shared.requests.lock().unwrap());
        requests.sort_by_key(|request| request.begun);
        requests
    }
}

/// What became of a run.
struct Run {
    killed: Instant,
    victim: String,
    requests: Vec<Request>,
    records: Vec<Record>,
}

/// Kills one of three backends after 1,000 requests; goes on for so long, and to so many requests.
fn run(keys: &str, goes_on: Duration, requests: usize) -> Run {
    let mut servers = ["b1", "b2", "b3"].map(Server::start);
    let addresses = servers.each_ref().map(Server::address);
    let list = addresses.each_ref().map(String::as_str);
    let yaml = one_listener("", &list, &format!("balance: round_robin, {keys}"));
    // The last of two equal keys would be one too many.
    let yaml = if keys.contains("health:") { yaml.replace("health: off, ", "") } else { yaml };
    let pointsman = Pointsman::start(&yaml);
    let clients = Clients::start(&pointsman.address("edge"));
    clients.wait_for(1000);
    servers[1].nginx.kill();
    let killed = Instant::now();
    pass(goes_on);
    // Enough that begin after that to be judged.
    clients.wait_for(requests.max(clients.count() + 10 * CLIENTS));
    let requests = clients.stop();
    let records = pointsman.access_log(requests.len());
    pointsman.wait_idle();
    pointsman.stop();
    let [_, victim, _] = addresses;
    Run { killed, victim, requests, records }
}

impl Run {
    fn failed(&self) -> impl Iterator<Item = &Request> {
        self.requests.iter().filter(|request| request.answer.is_err())
    }

    /// Of the requests that began then, the percentage that failed.
    fn failed_percent(&self, since: Duration, until: Duration) -> f64 {
        let then = self.killed + since..self.killed + until;
        let begun: Vec<_> = self.requests.iter().filter(|r| then.contains(&r.begun)).collect();
        assert!(begun.len() >= 100, "{} requests are too few to judge", begun.len());
        let failed = begun.iter().filter(|request| request.answer.is_err()).count();
        100.0 * failed as f64 / begun.len() as f64
    }

    /// How long after the death the last request failed.
    fn last_failure(&self) -> Duration {
        let ends = self.failed().map(|request| request.ended);
        ends.max().map_or(Duration::ZERO, |end| end.saturating_duration_since(self.killed))
    }

    /// Whether the request was on the dead backend when that died: connected to, unanswered.
    fn was_in_flight(&self, request: &Request, records: &HashMap<&str, Vec<&Record>>) -> bool {
        let of_client = &records[&*request.client.to_string()];
        let connected = Some((self.victim.clone(), "connected".to_owned()));
        let on_victim = |record: &&&Record| {
            record.text("backend") == self.victim
                && record.attempts().last() == connected.as_ref()
                && matches!(record.text("termination"), "backend_reset" | "backend_closed")
        };
        request.begun <= self.killed && of_client.iter().any(|record| on_victim(&record))
    }

    /// The failed requests, those in flight on the dead backend apart.
    fn in_flight_and_others(&self) -> (Vec<&Request>, Vec<&Request>) {
        let mut records: HashMap<&str, Vec<&Record>> = HashMap::new();
        for record in &self.records {
            records.entry(record.text("client")).or_default().push(record);
        }
        self.failed().partition(|request| self.was_in_flight(request, &records))
    }

    /// A row of the README's table.
    fn tell(&self, name: &str) {
        let (in_flight, others) = self.in_flight_and_others();
        let (requests, failed) = (self.requests.len(), others.len());
        let (on_it, last) = (in_flight.len(), self.last_failure());
        eprintln!("{name}: {requests} requests, {on_it} in flight, {failed} failed, last {last:?}");
        for request in in_flight {
            let (client, answer) = (request.client, request.answer.as_ref().unwrap_err());
            eprintln!("  in flight: {client}: {answer}");
        }
    }
}

/// Nobody looks and nobody tries again: every third request fails, and so it stays.
#[test]
fn without_checks_and_retries_a_third_fails_for_ever() {
    let run = run("connect: { attempts: 1 }, outlier: off", 1500 * MS, 0);
    run.tell("neither");
    for (since, until) in [(0, 1500), (1500, 60_000)] {
        let percent = run.failed_percent(since * MS, until * MS);
        assert!((30.0..37.0).contains(&percent), "{percent} % from {since} to {until} ms");
    }
    let before = run.failed().filter(|request| request.ended < run.killed).count();
    // Between the death and the moment that it is known in are a few that were in flight.
    assert!(before <= 3 * CLIENTS, "{before} failed before");
}

const CHECKS: &str = "health: { interval: 200ms, timeout: 200ms, fall: 2 }, outlier: off";

/// Checks alone: it fails until they have noticed.
#[test]
fn with_checks_failures_end_in_time() {
    let run = run(&format!("{CHECKS}, connect: {{ attempts: 1 }}"), 1500 * MS, 0);
    run.tell("checks");
    assert!(run.failed().count() > 10, "it would have failed without a death");
    let bound = 2 * 200 * MS + 200 * MS;
    assert!(run.last_failure() <= bound, "{:?}", run.last_failure());
}

/// Checks and retries: nothing fails but what was on the dead backend when it died.
#[test]
fn with_checks_and_retries_only_what_was_in_flight_fails() {
    let keys =
        format!("{CHECKS}, connect: {{ attempts: 3 }}").replace("outlier: off", "outlier: {}");
    let run = run(&keys, 1500 * MS, 5000);
    run.tell("checks and retries");
    assert!(run.requests.len() >= 5000);
    let (in_flight, others) = run.in_flight_and_others();
    let told: Vec<_> = others.iter().map(|r| (r.client, r.answer.as_ref().err())).collect();
    assert!(told.is_empty(), "{told:?}");
    assert!(in_flight.len() <= CLIENTS, "{}", in_flight.len());
    let retried = run.records.iter().filter(|record| record.attempts().len() > 1).count();
    assert!(retried > 0, "nothing ever came to the dead backend");
}
