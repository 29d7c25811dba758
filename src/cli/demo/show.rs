//! The demo's course: traffic, backends that fail and come back, and lines about it.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, interval_at, sleep};

use super::backend::DemoBackend;
use super::commentary::Commentary;
use super::traffic::{Finished, IN_FLIGHT, generate};
use super::{NAMES, entrance};
use crate::health::State;
use crate::service::Service;
use crate::state::{Phase, PoolState};

/// Before the first backend fails, while one is down, and before the next one fails.
const ACT: Duration = Duration::from_secs(4);
/// Between two lines about requests.
const REPORT: Duration = Duration::from_secs(2);
/// Between two looks at the states of backends.
const LOOK: Duration = Duration::from_millis(100);

/// Runs until `duration` is over, ctrl-c, or the balancer stops; returns the summary.
pub(super) async fn run(
    service: &Service,
    backends: &mut [DemoBackend],
    duration: Option<Duration>,
) -> anyhow::Result<String> {
    let (finished, mut results) = mpsc::channel(IN_FLIGHT);
    let traffic = tokio::spawn(generate(entrance(service)?, finished));
    let mut commentary = Commentary::new(Instant::now(), &NAMES);
    let mut end = std::pin::pin!(ended(duration));
    let mut acts = interval_at(tokio::time::Instant::now() + ACT, ACT);
    let mut reports = interval_at(tokio::time::Instant::now() + REPORT, REPORT);
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut act = 0;
    loop {
        // In this order, so that what the end causes is not counted.
        let lines = tokio::select! {
            biased;
            () = &mut end => break,
            Some(Finished { at, result }) = results.recv() => {
                if !running(service) {
                    break;
                }
                commentary.finished(at, &result);
                String::new()
            }
            _ = looks.tick() => commentary.states(Instant::now(), &states(service)),
            _ = acts.tick() => {
                act += 1;
                step(act, backends, &commentary).await
            }
            _ = reports.tick() => commentary.requests(Instant::now(), retries(service)),
        };
        if let Err(error) = io::stdout().write_all(lines.as_bytes()) {
            traffic.abort();
            return Err(error.into());
        }
    }
    traffic.abort();
    Ok(commentary.summary(Instant::now(), retries(service)))
}

/// The time is over or someone pressed ctrl-c.
async fn ended(duration: Option<Duration>) {
    let over = async {
        match duration {
            Some(duration) => sleep(duration).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = over => {}
        // Without a handler the signal ends the process, which will do too.
        _ = tokio::signal::ctrl_c() => {}
    }
}

/// Kills a backend on every odd act, brings it back on the even one, then it is the next one's
/// turn; the first one goes last, because b1 is the name that people look at first.
async fn step(act: usize, backends: &mut [DemoBackend], commentary: &Commentary) -> String {
    let turn = act.div_ceil(2) % backends.len().max(1);
    let Some(backend) = backends.get_mut(turn) else { return String::new() };
    let name = backend.name();
    if act % 2 == 1 {
        backend.kill().await;
        return commentary.event(Instant::now(), name, "is killed: port and connections closed");
    }
    match backend.revive() {
        Ok(()) => commentary.event(Instant::now(), name, "is back on its port"),
        Err(error) => commentary.event(Instant::now(), name, &format!("cannot come back: {error}")),
    }
}

fn running(service: &Service) -> bool {
    *service.process().phase.borrow() == Phase::Running
}

fn states(service: &Service) -> Vec<(String, State)> {
    let backends = service.process().registry.backends();
    backends.iter().map(|backend| (backend.name().to_string(), backend.state())).collect()
}

fn retries(service: &Service) -> u64 {
    let pools: Vec<Arc<PoolState>> = service.process().registry.pools();
    pools.iter().map(|pool| pool.retries_total()).sum()
}

#[cfg(test)]
mod tests {
    use super::super::traffic::request;
    use super::*;
    use crate::address::Address;

    #[tokio::test]
    async fn one_backend_at_a_time_fails_and_each_has_its_turn() {
        let mut backends = Vec::new();
        for name in NAMES {
            backends.push(DemoBackend::start(name).await.unwrap());
        }
        let commentary = Commentary::new(Instant::now(), &NAMES);
        let mut killed = Vec::new();
        for act in 1..=6 {
            let line = step(act, &mut backends, &commentary).await;
            let mut answering = Vec::new();
            for backend in &backends {
                if let Ok(name) = request(&Address::Ip(backend.address())).await {
                    answering.push(name);
                }
            }
            if act % 2 == 1 {
                let dead: Vec<_> =
                    NAMES.into_iter().filter(|n| !answering.iter().any(|a| a == n)).collect();
                assert_eq!(dead.len(), 1, "act {act}");
                assert!(line.contains(&format!("{} is killed", dead[0])), "{line}");
                killed.extend(dead);
            } else {
                assert_eq!(answering.len(), NAMES.len(), "act {act}: {line}");
            }
        }
        assert_eq!(killed, ["b2", "b3", "b1"]);
    }
}
