//! `pointsman demo`: a first run that needs nothing but this program.
//!
//! Three small HTTP servers, a balancer in front of them as `run` would start it, light traffic,
//! and one server after another that fails and comes back, with a running commentary.

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
mod commentary;
mod show;
mod traffic;

use backend::DemoBackend;

/// The backends' names.
const NAMES: [&str; 3] = ["b1", "b2", "b3"];

pub fn run(args: &Demo) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("demo")
        .enable_all()
        .build()?;
    let backends = NAMES.map(|name| runtime.block_on(DemoBackend::start(name)));
    let backends = backends.into_iter().collect::<io::Result<Vec<_>>>();
    let mut backends = backends.context("cannot start the demo's backends")?;
    let service = Service::start(config(&args.listen, &backends)?, None, None)?;
    introduce(&service, &backends)?;
    let summary = runtime.block_on(show::run(&service, &mut backends, args.duration));
    service.stop();
    service.wait()?;
    runtime.shutdown_background();
    // A reader that has gone away ends the demo, but everything is stopped first.
    io::stdout().write_all(summary?.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// What a user would write, with checks quick enough to watch.
fn config(listen: &Address, backends: &[DemoBackend]) -> anyhow::Result<Config> {
    let list: Vec<_> = backends
        .iter()
        .map(|backend| serde_json::json!({"name": backend.name(), "address": backend.address()}))
        .collect();
    // JSON is YAML, and takes care of quoting.
    let text = serde_json::json!({
        "log": {"level": "error"},
        "admin": {"bind": "127.0.0.1:0"},
        "shutdown": {"grace": "1s"},
        "listeners": {"demo": {"bind": listen.to_string(), "pool": "demo"}},
        "pools": {"demo": {
            "balance": "round_robin",
            "backends": list,
            "health": {"interval": "500ms", "timeout": "300ms", "rise": 2, "fall": 2},
        }},
    });
    crate::config::parse(&text.to_string(), "demo").map_err(|errors| anyhow::anyhow!("{errors}"))
}

fn introduce(service: &Service, backends: &[DemoBackend]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "Three HTTP servers behind one balancer, all of it on this machine:")?;
    writeln!(out)?;
    for backend in backends {
        writeln!(out, "  backend {}   {}", backend.name(), backend.address())?;
    }
    let entrance = entrance(service)?;
    writeln!(out, "  balancer     {entrance}, round robin, a health check every 500 ms")?;
    writeln!(out)?;
    writeln!(out, "Try while it runs:")?;
    writeln!(out)?;
    writeln!(out, "  {}", curl(&entrance, "/"))?;
    if let Some(admin) = service.admin() {
        writeln!(out, "  {}", curl(admin, "/metrics"))?;
        writeln!(out, "  {}", curl(admin, "/api/v1/status"))?;
        writeln!(out, "  pointsman status --admin {admin}")?;
    }
    writeln!(out)?;
    writeln!(out, "Ctrl-c ends it.")?;
    writeln!(out)?;
    Ok(())
}

fn curl(address: &Address, path: &str) -> String {
    match address {
        Address::Ip(address) => format!("curl http://{address}{path}"),
        Address::Unix(socket) => {
            format!("curl --unix-socket {} http://localhost{path}", socket.display())
        }
    }
}

/// Where the balancer listens: the kernel may have chosen the port.
fn entrance(service: &Service) -> anyhow::Result<Address> {
    let snapshot = service.snapshot();
    let socket: Option<&Arc<_>> = snapshot.listeners.iter().flat_map(|l| &l.sockets).next();
    Ok(socket.context("the balancer has no listener")?.local.clone())
}

/// Between two requests: twenty a second.
const PACE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_is_valid_and_lines_can_be_pasted() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let backend = runtime.block_on(DemoBackend::start("b1")).unwrap();
        let config = config(&"[::1]:0".parse().unwrap(), &[backend]).unwrap();
        assert_eq!(&*config.pools[0].backends[0].name, "b1");
        for (address, expected) in [
            ("127.0.0.1:80", "curl http://127.0.0.1:80/x"),
            ("[::1]:80", "curl http://[::1]:80/x"),
            ("unix:/a", "curl --unix-socket /a http://localhost/x"),
        ] {
            assert_eq!(curl(&address.parse().unwrap(), "/x"), expected);
        }
    }
}
