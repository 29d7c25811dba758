//! Checks go on while reloads take what is known from one configuration to the next.

use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;
use socket2::Socket;

use crate::harness::{
    Backend, HeldPort, Hideable, Pointsman, Stream, one_listener, pass, wait_until,
};

const MS: Duration = Duration::from_millis(1);

/// Closes what connects, as long as it is open; its port stays its own.
struct Door {
    port: HeldPort,
    open: Option<(Arc<Socket>, JoinHandle<()>)>,
}

impl Door {
    fn open(&mut self) {
        let listening = Arc::new(self.port.listen());
        let taking = listening.clone();
        let thread = std::thread::spawn(move || while taking.accept().is_ok() {});
        self.open = Some((listening, thread));
    }

    fn close(&mut self) {
        let Some((listening, thread)) = self.open.take() else { return };
        // Wakes who waits in accept, and refuses connections from now on.
        listening.shutdown(Shutdown::Both).unwrap();
        thread.join().expect("it accepts until it is told not to");
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.close();
    }
}

/// How many backends of the pool are in each state.
fn states(pointsman: &Pointsman, wanted: &str) -> usize {
    let status = pointsman.status();
    let backends = status["pools"]["pool"]["backends"].as_object().unwrap();
    let states = backends.values().map(|backend| backend["state"].as_str().unwrap());
    states.filter(|state| *state == wanted).count()
}

/// However a result and a reload meet, what is shown becomes what is so.
#[test]
fn states_settle_after_reloads() {
    const BACKENDS: usize = 500;
    let mut door = Door { port: HeldPort::new("0.0.0.0"), open: None };
    let port = door.port.address().port();
    let backends: Vec<_> =
        (0..BACKENDS).map(|n| format!("127.1.{}.{}:{port}", n / 250, n % 250 + 1)).collect();
    let backends: Vec<_> = backends.iter().map(String::as_str).collect();
    let health = "health: { interval: 200ms, timeout: 200ms, rise: 1, fall: 1 }";
    let yaml = one_listener("", &backends, "").replace("health: off", health);
    let pointsman = Pointsman::start(&format!("log: {{ level: error }}\n{yaml}"));
    for round in 0..4 {
        let settled = if round % 2 == 0 { "up" } else { "down" };
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    pointsman.reload_file().unwrap();
                }
            });
            for _ in 0..3 {
                door.open();
                pass(220 * MS); // the matter of the test: some checks see it, some do not
                door.close();
                pass(220 * MS);
            }
            if settled == "up" {
                door.open();
            }
            // The last change meets reloads as well.
            pass(220 * MS);
            stop.store(true, Relaxed);
        });
        let since = Instant::now();
        wait_until(&format!("all to be {settled}"), || states(&pointsman, settled) == BACKENDS);
        assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
        door.close();
    }
    pointsman.stop();
}

fn exchange(stream: &mut Stream) {
    stream.send(100);
    stream.receive(100);
}

fn state(status: &Value, backend: &str) -> String {
    status["pools"]["pool"]["backends"][backend]["state"].as_str().unwrap().to_owned()
}

/// Sessions keep a removed backend alive, but nobody checks it: what was known is worth nothing
/// when it comes back.
#[test]
fn a_backend_that_comes_back_is_checked_first() {
    let stays = Backend::echo();
    let goes = Hideable::serving(|stream| {
        let socket = stream.socket();
        let _end = std::io::copy(&mut &**socket, &mut &**socket);
    });
    let (stays, returns) = (stays.address(), goes.address());
    let yaml = |backends: &[&str]| {
        let settings = "balance: round_robin, connect: { attempts: 1 }";
        // Nothing is found out by a check but by the first one.
        one_listener("", backends, settings).replace("health: off", "health: { interval: 1h }")
    };
    let (both, one) = (yaml(&[&stays, &returns]), yaml(&[&stays]));
    let pointsman = Pointsman::start(&both);
    assert_eq!(state(&pointsman.status(), &returns), "up");
    let mut sessions: Vec<_> = (0..4).map(|_| pointsman.connect("edge")).collect();
    sessions.iter_mut().for_each(exchange);
    let metrics = pointsman.metrics();
    let labels = [("pool", "pool"), ("backend", &*returns)];
    assert_eq!(metrics.value("pointsman_backend_connections_active", &labels), 2.0);
    for _ in 0..3 {
        pointsman.reload(&one).unwrap();
        goes.hide();
        pointsman.reload(&both).unwrap();
        let state = state(&pointsman.status(), &returns);
        assert!(state == "unknown" || state == "down", "{state} before its first check");
        for _ in 0..10 {
            exchange(&mut pointsman.connect("edge"));
        }
        goes.show();
    }
    // Those that were there all the time never noticed.
    sessions.iter_mut().for_each(exchange);
    drop(sessions);
    let records = pointsman.access_log(34);
    assert!(records.iter().all(|record| record.text("termination") == "client_closed"));
    pointsman.reload(&one).unwrap();
    pointsman.reload(&both).unwrap();
    wait_until("it to be up again", || state(&pointsman.status(), &returns) == "up");
    pointsman.stop();
}
