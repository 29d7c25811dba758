//! Thousands of backends: what their checks cost, and that none comes late or in a burst.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Shutdown};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use socket2::Socket;

use crate::harness::{HeldPort, Pointsman, Stalls, one_listener, pass};

const INTERVAL: Duration = Duration::from_secs(2);

/// An optimized build is held to the figure of the README, the other to a fifth of it.
const BACKENDS: u32 = if cfg!(debug_assertions) { 2_000 } else { 10_000 };

/// How long the checks are watched after the first round.
const WATCHED: Duration = Duration::from_secs(8);

/// Every address of 127.0.0.0/8 at one port; closes what connects, and notes when.
struct Everywhere {
    port: HeldPort,
    listening: Arc<Socket>,
    arrivals: Arc<Mutex<Vec<(Instant, IpAddr)>>>,
    thread: Option<JoinHandle<()>>,
}

impl Everywhere {
    fn open() -> Self {
        let port = HeldPort::new("0.0.0.0");
        let listening = Arc::new(port.listen());
        let arrivals: Arc<Mutex<Vec<(Instant, IpAddr)>>> = Arc::default();
        let thread = std::thread::spawn({
            let (listening, arrivals) = (listening.clone(), arrivals.clone());
            move || {
                while let Ok((socket, _)) = listening.accept() {
                    let now = Instant::now();
                    // A probe that has gone already has no address any more, but it came.
                    let Ok(local) = socket.local_addr() else { continue };
                    let local = local.as_socket().unwrap();
                    arrivals.lock().unwrap().push((now, local.ip()));
                }
            }
        });
        Everywhere { port, listening, arrivals, thread: Some(thread) }
    }

    /// One address each.
    fn backends(&self) -> Vec<String> {
        let port = self.port.address().port();
        let address = |n: u32| Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 1, 0, 1)) + n);
        (0..BACKENDS).map(|n| format!("{}:{port}", address(n))).collect()
    }

    fn take(&self) -> Vec<(Instant, IpAddr)> {
        std::mem::take(&mut *self.arrivals.lock().unwrap())
    }
}

impl Drop for Everywhere {
    fn drop(&mut self) {
        // Wakes who waits in accept.
        self.listening.shutdown(Shutdown::Both).unwrap();
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || matches!(ended, Some(Ok(()))));
    }
}

/// The longest time between two probes of one address, and the most probes in a tenth of a second.
fn longest_and_densest(arrivals: &[(Instant, IpAddr)]) -> (Duration, usize) {
    let mut last = HashMap::new();
    let mut longest = Duration::ZERO;
    for (at, address) in arrivals {
        if let Some(before) = last.insert(*address, *at) {
            longest = longest.max(at.saturating_duration_since(before));
        }
    }
    let tenth = Duration::from_millis(100);
    let within = |(start, (at, _)): (usize, &(Instant, IpAddr))| {
        arrivals[start..].iter().take_while(|(later, _)| *later < *at + tenth).count()
    };
    (longest, arrivals.iter().enumerate().map(within).max().unwrap_or(0))
}

/// No check is late by more than 200 ms, no moment has many more than another, and all together
/// cost at most half of a core.
#[test]
fn thousands_of_backends_are_checked_in_time_and_cheaply() {
    let everywhere = Everywhere::open();
    let backends = everywhere.backends();
    let backends: Vec<&str> = backends.iter().map(String::as_str).collect();
    let yaml = one_listener("", &backends, "").replace("health: off", "health: { interval: 2s }");
    let pointsman = Pointsman::start(&format!("log: {{ level: error }}\n{yaml}"));
    let metrics = pointsman.metrics();
    assert_eq!(metrics.sum("pointsman_backend_state", ("state", "up")), f64::from(BACKENDS));
    // The second checks are the first that are spread over the whole interval.
    let first_round = everywhere.take();
    assert!(first_round.len() >= BACKENDS as usize, "{}", first_round.len());

    let stalls = Stalls::watch();
    let (begun, before) = (Instant::now(), pointsman.cpu_time());
    pass(WATCHED);
    let (took, cpu) = (begun.elapsed(), pointsman.cpu_time() - before);
    // Both the process and this one may have been kept waiting.
    let stalled = stalls.worst() * 2;
    let arrivals = everywhere.take();
    let share = cpu.as_secs_f64() / took.as_secs_f64();
    let (longest, densest) = longest_and_densest(&arrivals);
    let late = longest.saturating_sub(INTERVAL * 11 / 10);
    let fair = f64::from(BACKENDS) / INTERVAL.as_secs_f64() / 10.0;
    let rate = arrivals.len() as f64 / took.as_secs_f64();
    eprintln!(
        "{BACKENDS} backends: {rate:.0} checks/s, {:.0} % of a core, {late:?} late, {densest} in \
         100 ms where {fair:.0} are fair; the machine stalled for {stalled:?}",
        share * 100.0
    );
    let burst = 2.0 * fair + 50.0 + stalled.as_secs_f64() * rate;
    assert!(rate * INTERVAL.as_secs_f64() >= f64::from(BACKENDS) * 0.9, "{rate} checks/s");
    assert!(late <= Duration::from_millis(200) + stalled, "late by {late:?}");
    assert!((densest as f64) < burst, "{densest} checks in 100 ms, {burst} at most");
    assert!(share <= 0.5, "{share} of a core");
    pointsman.stop();
}
