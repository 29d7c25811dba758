//! The demo's course: traffic, backends that fail and come back, and lines about it.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, interval_at, sleep};

use super::backend::DemoBackend;
use super::commentary::Commentary;
use super::traffic::{Entrance, Finished, IN_FLIGHT, generate};
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
    entrance: Entrance,
    duration: Option<Duration>,
) -> anyhow::Result<String> {
    let (finished, mut results) = mpsc::channel(IN_FLIGHT);
    let traffic = tokio::spawn(generate(entrance, finished));
    let names: Vec<&'static str> = backends.iter().map(DemoBackend::name).collect();
    let mut commentary = Commentary::new(Instant::now(), &names);
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

/// Stops a backend on every odd act, brings it back on the even one, then it is the next one's
/// turn; the first one goes last, because that is the name that people look at first. A backend
/// that is alone in its pool stays: without it, there would be nothing to show.
async fn step(act: usize, backends: &mut [DemoBackend], commentary: &Commentary) -> String {
    let mut several: Vec<_> =
        backends.iter_mut().filter(|backend| backend.site().backends.len() > 1).collect();
    let turn = act.div_ceil(2) % several.len().max(1);
    let Some(backend) = several.get_mut(turn) else { return String::new() };
    let name = backend.name();
    if act % 2 == 1 {
        backend.stop().await;
        return commentary.event(Instant::now(), name, "is stopped: its port is closed");
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
    use super::super::certificates::Authority;
    use super::super::traffic::request;
    use super::*;
    use crate::address::Address;

    #[tokio::test]
    async fn one_backend_at_a_time_fails_and_each_of_several_has_its_turn() {
        let authority = Authority::new().unwrap();
        let mut backends = super::super::start(&authority).await.unwrap();
        let names: Vec<_> = backends.iter().map(DemoBackend::name).collect();
        let commentary = Commentary::new(Instant::now(), &names);
        let mut stopped = Vec::new();
        for act in 1..=4 {
            let line = step(act, &mut backends, &commentary).await;
            let mut silent = Vec::new();
            for backend in &backends {
                let address = Address::Ip(backend.address());
                let entrance = Entrance { address, tls: authority.connector().unwrap() };
                match request(&entrance, backend.site().visited).await {
                    Ok(name) => assert_eq!(name, backend.name()),
                    Err(_) => silent.push(backend.name()),
                }
            }
            if act % 2 == 1 {
                assert_eq!(silent.len(), 1, "act {act}");
                assert!(line.contains(&format!("{} is stopped", silent[0])), "{line}");
                stopped.extend(silent);
            } else {
                assert!(silent.is_empty(), "act {act}: {line}");
            }
        }
        assert_eq!(stopped, ["shop-2", "shop-1"]);
    }
}
