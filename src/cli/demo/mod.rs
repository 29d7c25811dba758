//! `pointsman demo`: a first run that needs nothing but this program.
//!
//! Small HTTPS servers of three sites and two name servers, a balancer in front of them as `run`
//! would start it, light traffic, and servers that fail and come back, with a running commentary.

use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::process::ExitCode;
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
mod names;
mod questions;
mod show;
mod traffic;

use backend::DemoBackend;
use certificates::Authority;
use introduction::{Doors, introduction};
use names::NameServer;
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

/// The name servers, each with the address that it gives (TEST-NET-1, RFC 5737).
const NAMES: [(&str, Ipv4Addr); 2] =
    [("dns-1", Ipv4Addr::new(192, 0, 2, 1)), ("dns-2", Ipv4Addr::new(192, 0, 2, 2))];

/// Names of the listeners.
const HTTPS: &str = "demo";
const DNS: &str = "dns";

/// Who can answer.
struct Servers {
    sites: Vec<DemoBackend>,
    names: Vec<NameServer>,
}

/// Between two requests: twenty a second.
const PACE: Duration = Duration::from_millis(50);

pub fn run(args: &Demo) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("demo")
        .enable_all()
        .build()?;
    let authority = Authority::new().context("cannot make certificates")?;
    let mut servers =
        runtime.block_on(start(&authority)).context("cannot start the demo's backends")?;
    let service = Service::start(config(&args.listen, &servers)?, None, None)?;
    let certificate = authority.publish()?;
    let address = entrance(&service, HTTPS)?;
    let dns = entrance(&service, DNS)?.ip().context("the name servers' listener has no address")?;
    let doors = Doors { https: &address, dns, admin: service.admin() };
    let text = introduction(&doors, &servers, certificate.path());
    io::stdout().write_all(text.as_bytes())?;
    let entrance = Entrance { address, tls: authority.connector()? };
    let show = show::run(&service, &mut servers, (entrance, dns), args.duration);
    let summary = runtime.block_on(show);
    service.stop();
    service.wait()?;
    runtime.shutdown_background();
    // A reader that has gone away ends the demo, but everything is stopped first.
    io::stdout().write_all(summary?.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Starts every backend of every site, and the name servers.
async fn start(authority: &Authority) -> anyhow::Result<Servers> {
    let mut sites = Vec::new();
    for site in &SITES {
        for name in site.backends {
            let tls = authority.acceptor(site.host)?;
            sites.push(DemoBackend::start(name, site, tls).await?);
        }
    }
    let mut names = Vec::new();
    for (name, record) in NAMES {
        names.push(NameServer::start(name, record).await?);
    }
    Ok(Servers { sites, names })
}

/// What a user would write, with checks quick enough to watch.
fn config(listen: &Address, servers: &Servers) -> anyhow::Result<Config> {
    let routes = SITES.iter().map(|site| serde_json::json!({"sni": site.host, "pool": site.pool}));
    let refused = serde_json::json!({"action": "reject"});
    let routes: Vec<_> = routes.chain([refused]).collect();
    let pool = |site: &Site| {
        let own = servers.sites.iter().filter(|backend| backend.site().pool == site.pool);
        let list: Vec<_> =
            own.map(|b| serde_json::json!({"name": b.name(), "address": b.address()})).collect();
        let pool = serde_json::json!({
            "balance": "round_robin",
            "backends": list,
            "health": {"interval": "500ms", "timeout": "300ms", "rise": 2, "fall": 2},
        });
        (site.pool.to_owned(), pool)
    };
    let mut pools: serde_json::Map<String, _> = SITES.iter().map(pool).collect();
    pools.insert(DNS.to_owned(), names_pool(&servers.names));
    let dns = serde_json::json!({
        "bind": "127.0.0.1:0", "protocol": "udp", "udp": {"responses": 1}, "pool": DNS,
    });
    // JSON is YAML, and takes care of quoting.
    let text = serde_json::json!({
        "log": {"level": "error"},
        "admin": {"bind": "127.0.0.1:0"},
        "shutdown": {"grace": "1s"},
        "listeners": {HTTPS: {"bind": listen.to_string(), "routes": routes}, DNS: dns},
        "pools": pools,
    });
    crate::config::parse(&text.to_string(), "demo").map_err(|errors| anyhow::anyhow!("{errors}"))
}

/// Over UDP nothing but an answer says that a server works, so a check asks a question.
fn names_pool(names: &[NameServer]) -> serde_json::Value {
    let list: Vec<_> =
        names.iter().map(|n| serde_json::json!({"name": n.name, "address": n.address})).collect();
    let question = questions::question(0, names::ZONE, names::TXT);
    let send: String = question.iter().map(|byte| format!("{byte:02x}")).collect();
    serde_json::json!({
        "balance": "round_robin",
        "backends": list,
        "health": {
            "type": "udp", "send": {"hex": send}, "expect": "answered by",
            "interval": "500ms", "timeout": "300ms", "rise": 2, "fall": 2,
        },
    })
}

/// Where a listener of the balancer is: the kernel may have chosen the port.
fn entrance(service: &Service, name: &str) -> anyhow::Result<Address> {
    let snapshot = service.snapshot();
    let listener = snapshot.listeners.iter().find(|entrance| &*entrance.listener.name == name);
    let socket = listener.and_then(|entrance| entrance.sockets.first());
    Ok(socket.context("the balancer has no listener")?.local.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_is_valid_and_routes_every_site() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let authority = Authority::new().unwrap();
        let servers = runtime.block_on(start(&authority)).unwrap();
        let config = config(&"[::1]:0".parse().unwrap(), &servers).unwrap();
        for pool in &config.pools {
            let names: Vec<_> = pool.backends.iter().map(|backend| &*backend.name).collect();
            let site = SITES.iter().find(|site| *site.pool == *pool.name);
            assert_eq!(names, site.map_or(&["dns-1", "dns-2"][..], |site| site.backends));
        }
        for (route, site) in config.listeners[0].routes.iter().zip(&SITES) {
            assert!(route.conditions.sni[0].matches(site.visited));
        }
    }
}
