//! `pointsman explain`: the way of one connection through the data plane's own code, without a
//! connection.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};

use super::args::Explain;
use super::{FAILED, complain};
use crate::config::{self, Config, Hint, Protocol, Quoted};
use crate::health::State;
use crate::limits::HELLO_MAX;
use crate::route::HostPattern;
use crate::snapshot::{self, Snapshot};
use crate::state::Registry;
use crate::wire::Alpn;

mod hello;
mod pick;
mod way;

use hello::Sent;

/// The client's address, as far as it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    pub ip: IpAddr,
    pub port: Option<u16>,
}

pub fn run(args: &Explain) -> anyhow::Result<ExitCode> {
    let config = match config::load(&args.config) {
        Ok(config) => config,
        Err(errors) => {
            errors.lines().for_each(|line| complain(&line));
            return Ok(ExitCode::from(FAILED));
        }
    };
    let sent = if args.hello.is_empty() {
        let sni = args.sni.as_ref().map(|pattern| pattern.name().into());
        Sent::Said { sni, alpn: Alpn::from_names(&args.alpn)? }
    } else {
        let read =
            |path: &PathBuf| read(path).with_context(|| format!("cannot read {}", path.display()));
        let parts = args.hello.iter().map(read).collect::<anyhow::Result<_>>()?;
        let names: Vec<_> = args.hello.iter().map(|path| path.display().to_string()).collect();
        Sent::Bytes { parts, from: names.join(", ") }
    };
    let text = explain(config, &args.listener, &sent, args.source)?;
    io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn explain(
    config: Config,
    listener: &str,
    sent: &Sent,
    source: Option<Source>,
) -> anyhow::Result<String> {
    let snapshot = snapshot(config)?;
    let mut listeners = snapshot.config.listeners.iter().zip(&snapshot.listeners);
    let Some((said, entrance)) = listeners.find(|(said, _)| *said.name == *listener) else {
        let names = snapshot.config.listeners.iter().map(|listener| &*listener.name);
        let hint = Hint::new(listener, names, "see `pointsman check`");
        bail!("there is no listener {}; {hint}", Quoted::new(listener));
    };
    if let Sent::Bytes { parts, .. } = sent
        && said.protocol == Protocol::Tcp
        && parts.len() > 1
    {
        bail!("several --hello are the datagrams of a flow, and {listener} is for TCP; give one");
    }
    Ok(way::explain(said, &entrance.listener, sent, source))
}

/// The snapshot that `run` would make of it once every check has passed, without sockets.
fn snapshot(config: Config) -> anyhow::Result<Snapshot> {
    let registry = Registry::new(1);
    let sockets = config.listeners.iter().map(|_| Vec::new()).collect();
    let snapshot = snapshot::build(Arc::new(config), 1, sockets, &registry)?;
    for pool in &snapshot.pools {
        pool.backends.iter().for_each(|backend| backend.state.set_state(State::Up));
        pool.weigh();
    }
    Ok(snapshot)
}

/// The beginning of a file, as far as any listener would read.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(HELLO_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A host name, normalized as one on the wire is; U-labels become A-labels.
pub fn parse_name(text: &str) -> anyhow::Result<HostPattern> {
    let name: HostPattern = text.parse()?;
    if name.is_wildcard() {
        bail!("a client sends one name, not a pattern; write it like www.{}", name.name());
    }
    Ok(name)
}

/// The name of a protocol.
pub fn parse_protocol(text: &str) -> anyhow::Result<String> {
    Alpn::from_names([text])?;
    Ok(text.to_owned())
}

/// An address, with or without a port.
pub fn parse_source(text: &str) -> anyhow::Result<Source> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(Source { ip: address.ip(), port: Some(address.port()) });
    }
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let ip = bare.parse().map_err(|_| anyhow!("write it like 192.0.2.1 or 192.0.2.1:50000"))?;
    Ok(Source { ip, port: None })
}

#[cfg(test)]
mod tests;
