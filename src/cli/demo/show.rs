//! The demo's course: traffic, backends that fail and come back, and lines about it.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, interval_at, sleep};

use super::Servers;
use super::backend::DemoBackend;
use super::commentary::Commentary;
use super::names::NameServer;
use super::questions;
use super::traffic::{self, Entrance, IN_FLIGHT};
use crate::health::State;
use crate::service::Service;
use crate::state::{Phase, PoolState};

/// Before the first backend fails, while one is down, and before the next one fails.
const ACT: Duration = Duration::from_millis(2500);
/// Between two lines about requests.
const REPORT: Duration = Duration::from_secs(2);
/// Between two looks at the states of backends.
const LOOK: Duration = Duration::from_millis(100);

/// Runs until `duration` is over, ctrl-c, or the balancer stops; returns the summary.
pub(super) async fn run(
    service: &Service,
    servers: &mut Servers,
    (entrance, dns): (Entrance, SocketAddr),
    duration: Option<Duration>,
) -> anyhow::Result<String> {
    let (finished, mut results) = mpsc::channel(IN_FLIGHT);
    // Dropped with this, and the clients with it.
    let mut traffic = JoinSet::new();
    traffic.spawn(traffic::generate(entrance, finished.clone()));
    traffic.spawn(questions::generate(dns, finished));
    let mut commentary = commentary(servers);
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
            Some(finished) = results.recv() => {
                if !running(service) {
                    break;
                }
                commentary.finished(&finished);
                String::new()
            }
            _ = looks.tick() => commentary.states(Instant::now(), &states(service)),
            _ = acts.tick() => {
                act += 1;
                step(act, servers, &commentary).await
            }
            _ = reports.tick() => commentary.requests(Instant::now(), retries(service)),
        };
        io::stdout().write_all(lines.as_bytes())?;
    }
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

fn commentary(servers: &Servers) -> Commentary {
    let sites: Vec<_> = servers.sites.iter().map(DemoBackend::name).collect();
    let names: Vec<_> = servers.names.iter().map(|server| server.name).collect();
    Commentary::new(Instant::now(), &sites, &names)
}

/// Who fails and comes back.
enum Server<'a> {
    Site(&'a mut DemoBackend),
    Name(&'a mut NameServer),
}

/// Stops a server on every odd act, brings it back on the even one, then it is the next one's turn:
/// one of a site, a name server, and so on. The first ones go last, because those are the names that
/// people look at first. A backend that is alone in its pool stays: without it, there would be
/// nothing to show.
async fn step(act: usize, servers: &mut Servers, commentary: &Commentary) -> String {
    let sites = servers.sites.iter_mut().filter(|backend| backend.site().backends.len() > 1);
    let pairs = sites.rev().zip(servers.names.iter_mut().rev());
    let mut turns: Vec<_> =
        pairs.flat_map(|(site, name)| [Server::Site(site), Server::Name(name)]).collect();
    let turn = act.saturating_sub(1) / 2 % turns.len().max(1);
    let Some(server) = turns.get_mut(turn) else { return String::new() };
    let name = server.name();
    if act % 2 == 1 {
        server.stop().await;
        return commentary.event(Instant::now(), name, "is stopped: its port is closed");
    }
    match server.revive().await {
        Ok(()) => commentary.event(Instant::now(), name, "is back on its port"),
        Err(error) => commentary.event(Instant::now(), name, &format!("cannot come back: {error}")),
    }
}

impl Server<'_> {
    fn name(&self) -> &'static str {
        match self {
            Server::Site(backend) => backend.name(),
            Server::Name(server) => server.name,
        }
    }

    async fn stop(&mut self) {
        match self {
            Server::Site(backend) => backend.stop().await,
            Server::Name(server) => server.stop().await,
        }
    }

    async fn revive(&mut self) -> io::Result<()> {
        match self {
            Server::Site(backend) => backend.revive(),
            Server::Name(server) => server.revive().await,
        }
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
    async fn one_server_at_a_time_fails_and_each_of_several_has_its_turn() {
        let authority = Authority::new().unwrap();
        let mut servers = super::super::start(&authority).await.unwrap();
        let commentary = commentary(&servers);
        let mut stopped = Vec::new();
        for act in 1..=8 {
            let line = step(act, &mut servers, &commentary).await;
            let mut silent = Vec::new();
            for backend in &servers.sites {
                let address = Address::Ip(backend.address());
                let entrance = Entrance { address, tls: authority.connector().unwrap() };
                match request(&entrance, backend.site().visited).await {
                    Ok(name) => assert_eq!(name, backend.name()),
                    Err(_) => silent.push(backend.name()),
                }
            }
            for server in &servers.names {
                match questions::ask(server.address, 1).await.0 {
                    Ok(name) => assert_eq!(name, server.name),
                    Err(_) => silent.push(server.name),
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
        assert_eq!(stopped, ["shop-2", "dns-2", "shop-1", "dns-1"]);
    }
}
