//! `pointsman demo`: a first run that needs nothing but this program.
//!
//! Small HTTPS servers of three sites, a balancer in front of them as `run` would start it, light
//! traffic, and servers that fail and come back, with a running commentary.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;

use super::args::Demo;
use crate::address::Address;
use crate::config::Config;
use crate::service::Service;

mod backend;
mod certificates;
mod commentary;
mod introduction;
mod show;
mod traffic;

use backend::DemoBackend;
use certificates::Authority;
use introduction::introduction;
use traffic::Entrance;

/// A host name, who serves it, and the pool of those.
#[derive(Debug)]
struct Site {
    /// What its certificate is for, and its route.
    host: &'static str,
    /// The name that clients ask for.
    visited: &'static str,
    pool: &'static str,
    backends: &'static [&'static str],
}

const SITES: [Site; 3] = [
    Site {
        host: "shop.example.test",
        visited: "shop.example.test",
        pool: "shop",
        backends: &["shop-1", "shop-2"],
    },
    Site {
        host: "api.example.test",
        visited: "api.example.test",
        pool: "api",
        backends: &["api-1"],
    },
    Site {
        host: "*.cdn.example.test",
        visited: "img.cdn.example.test",
        pool: "cdn",
        backends: &["cdn-1"],
    },
];

/// Between two requests: twenty a second.
const PACE: Duration = Duration::from_millis(50);

pub fn run(args: &Demo) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("demo")
        .enable_all()
        .build()?;
    let authority = Authority::new().context("cannot make certificates")?;
    let mut backends =
        runtime.block_on(start(&authority)).context("cannot start the demo's backends")?;
    let service = Service::start(config(&args.listen, &backends)?, None, None)?;
    let certificate = authority.publish()?;
    let entrance = Entrance { address: entrance(&service)?, tls: authority.connector()? };
    let text = introduction(&entrance.address, service.admin(), &backends, certificate.path());
    io::stdout().write_all(text.as_bytes())?;
    let summary = runtime.block_on(show::run(&service, &mut backends, entrance, args.duration));
    service.stop();
    service.wait()?;
    runtime.shutdown_background();
    // A reader that has gone away ends the demo, but everything is stopped first.
    io::stdout().write_all(summary?.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Starts every backend of every site.
async fn start(authority: &Authority) -> anyhow::Result<Vec<DemoBackend>> {
    let mut backends = Vec::new();
    for site in &SITES {
        for name in site.backends {
            let tls = authority.acceptor(site.host)?;
            backends.push(DemoBackend::start(name, site, tls).await?);
        }
    }
    Ok(backends)
}

/// What a user would write, with checks quick enough to watch.
fn config(listen: &Address, backends: &[DemoBackend]) -> anyhow::Result<Config> {
    let routes = SITES.iter().map(|site| serde_json::json!({"sni": site.host, "pool": site.pool}));
    let refused = serde_json::json!({"action": "reject"});
    let routes: Vec<_> = routes.chain([refused]).collect();
    let pool = |site: &Site| {
        let own = backends.iter().filter(|backend| backend.site().pool == site.pool);
        let list: Vec<_> =
            own.map(|b| serde_json::json!({"name": b.name(), "address": b.address()})).collect();
        let pool = serde_json::json!({
            "balance": "round_robin",
            "backends": list,
            "health": {"interval": "500ms", "timeout": "300ms", "rise": 2, "fall": 2},
        });
        (site.pool.to_owned(), pool)
    };
    let pools: serde_json::Map<String, _> = SITES.iter().map(pool).collect();
    // JSON is YAML, and takes care of quoting.
    let text = serde_json::json!({
        "log": {"level": "error"},
        "admin": {"bind": "127.0.0.1:0"},
        "shutdown": {"grace": "1s"},
        "listeners": {"demo": {"bind": listen.to_string(), "routes": routes}},
        "pools": pools,
    });
    crate::config::parse(&text.to_string(), "demo").map_err(|errors| anyhow::anyhow!("{errors}"))
}

/// Where the balancer listens: the kernel may have chosen the port.
fn entrance(service: &Service) -> anyhow::Result<Address> {
    let snapshot = service.snapshot();
    let socket: Option<&Arc<_>> = snapshot.listeners.iter().flat_map(|l| &l.sockets).next();
    Ok(socket.context("the balancer has no listener")?.local.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_is_valid_and_routes_every_site() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let authority = Authority::new().unwrap();
        let backends = runtime.block_on(start(&authority)).unwrap();
        let config = config(&"[::1]:0".parse().unwrap(), &backends).unwrap();
        for pool in &config.pools {
            let names: Vec<_> = pool.backends.iter().map(|backend| &*backend.name).collect();
            let site = SITES.iter().find(|site| *site.pool == *pool.name).unwrap();
            assert_eq!(names, site.backends);
        }
        for (route, site) in config.listeners[0].routes.iter().zip(&SITES) {
            assert!(route.conditions.sni[0].matches(site.visited));
        }
    }
}
