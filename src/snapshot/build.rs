//! From a valid configuration to a snapshot.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use super::pool::{Backend, Member, Pool};
use super::server_ids::ServerIds;
use super::{Entrance, Lead, ListenSocket, Listener, Snapshot};
use crate::balance::{self, BuildError, Policy};
use crate::config::{self, Action, Config, PerSource};
use crate::flow::{Limits, Prefixes};
use crate::health::State;
use crate::route::Routes;
use crate::state::{ListenerState, Registry, Sources, Words};

/// The bits of a digest.
const DIGEST: u64 = (1 << 48) - 1;

/// Compiles `config`. `sockets` has the bound addresses of each listener, in its order. What the
/// registry knows already keeps its counters and state; nothing in it is changed.
pub fn build(
    config: Arc<Config>,
    generation: u64,
    sockets: Vec<Vec<Arc<ListenSocket>>>,
    registry: &Registry,
) -> Result<Snapshot, BuildError> {
    let seed = config.hash_seed;
    let pools: Vec<Arc<Pool>> = config
        .pools
        .iter()
        .map(|pool| build_pool(pool, seed, registry).map(Arc::new))
        .collect::<Result<_, _>>()?;
    let listeners = config
        .listeners
        .iter()
        .zip(sockets)
        .map(|(listener, sockets)| {
            let reads_hello = listener.reads_hello(&config.pools);
            let listener = build_listener(listener, reads_hello, &pools, registry);
            Entrance { listener: Arc::new(listener), sockets }
        })
        .collect();
    Ok(Snapshot { generation, config, listeners, pools })
}

fn build_listener(
    listener: &config::Listener,
    reads_hello: bool,
    pools: &[Arc<Pool>],
    registry: &Registry,
) -> Listener {
    let lead = |action: &Action| match action {
        Action::Pool(pool) => Lead::Pool(pools[*pool].clone()),
        Action::Split { shares, split } => {
            let pools = shares.iter().map(|share| pools[share.pool].clone());
            Lead::Split(split.clone(), pools.collect())
        }
        Action::Reject => Lead::Reject,
        Action::Reset => Lead::Reset,
    };
    let conditions: Vec<_> = listener.routes.iter().map(|route| route.conditions.clone()).collect();
    let routes = Routes::compile(&conditions);
    let state = registry.listener(&listener.name);
    let actions: Vec<Lead> = listener.routes.iter().map(|route| lead(&route.action)).collect();
    Listener {
        name: listener.name.clone(),
        protocol: listener.protocol,
        timeouts: Arc::new(listener.timeouts),
        limits: listener.limits,
        udp: listener.udp,
        sources: listener.limits.per_source.map(|limits| sources(&limits, &state)),
        preread: listener.preread,
        reads_hello,
        knows_server_ids: actions.iter().flat_map(Lead::pools).any(|p| p.server_ids.is_some()),
        routes,
        actions,
        state,
    }
}

fn sources(limits: &PerSource, state: &ListenerState) -> Arc<Sources> {
    let prefixes = Prefixes { v4: limits.prefix_v4, v6: limits.prefix_v6 };
    state.sources(prefixes, Limits { flows: limits.flows, rate: limits.rate })
}

/// Whether picks have no reason to tell two idle backends apart.
fn is_like(a: &Backend, b: &Backend) -> bool {
    let differ = a.weight != b.weight || a.weight == 0;
    !differ && !a.backup && a.max_connections.is_none()
}

fn build_pool(pool: &config::Pool, seed: u64, registry: &Registry) -> Result<Pool, BuildError> {
    let state = registry.pool(&pool.name);
    // What is not checked counts as up.
    let first = if pool.health.is_some() { State::Unknown } else { State::Up };
    // The order of the file means nothing: hash policies must pick alike on every instance.
    let mut keyed: Vec<(String, &config::Backend)> =
        pool.backends.iter().map(|b| (b.address.to_string(), b)).collect();
    keyed.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    let backend = |(_, backend): &(String, &config::Backend)| {
        let state = registry.backend(&state, &backend.name, &backend.address, first);
        Backend {
            name: backend.name.clone(),
            weight: state.weight().unwrap_or(backend.weight),
            configured_weight: backend.weight,
            backup: backend.backup,
            max_connections: backend.max_connections,
            state,
        }
    };
    let backends: Vec<Backend> = keyed.iter().map(backend).collect();
    let keys = keyed.iter().map(|(key, _)| &**key);
    let Tables { policy, backups, digest } = tables(pool, seed, keys, &backends)?;
    let member = |b: &Backend| Member { weight: b.weight, backup: b.backup };
    let built = Pool {
        name: pool.name.clone(),
        spec: pool.balance,
        policy,
        backups,
        digest,
        hash_seed: seed,
        words: Words::of(backends.iter().map(|backend| backend.state.seat())),
        members: backends.iter().map(member).collect(),
        capped: backends.iter().any(|backend| backend.max_connections.is_some()),
        alike: backends.iter().all(|backend| is_like(backend, &backends[0])),
        backends,
        up_weight: AtomicU32::new(0),
        connect: pool.connect,
        ready: pool.ready,
        replay_hello: pool.replay_hello,
        server_ids: pool
            .quic_lb
            .as_ref()
            .and_then(|quic_lb| ServerIds::new(quic_lb, keyed.iter().map(|(_, backend)| *backend))),
        health: pool.health.clone(),
        slow_start: pool.slow_start,
        on_down: pool.on_down,
        close_spread: pool.close_spread,
        max_connections: pool.max_connections,
        queue: pool.queue,
        outlier: pool.outlier,
        panic_threshold: pool.panic_threshold,
        state,
    };
    built.weigh();
    Ok(built)
}

/// What the policy of a pool looks up.
struct Tables {
    policy: Policy,
    backups: Option<Policy>,
    digest: Option<u64>,
}

/// `keys`: the addresses of `backends`.
fn tables<'a>(
    pool: &config::Pool,
    seed: u64,
    keys: impl Iterator<Item = &'a str> + Clone,
    backends: &[Backend],
) -> Result<Tables, BuildError> {
    // Each policy's tables are over all indices; who is not its own takes no part, as weight 0.
    let tables = |backups: bool| {
        let weight = |b: &Backend| if b.backup == backups { b.weight } else { 0 };
        let member = |(key, b): (&'a str, _)| balance::Member { key, weight: weight(b) };
        let members: Vec<balance::Member<'_>> = keys.clone().zip(backends).map(member).collect();
        let policy = Policy::new(&pool.balance, &members)?;
        let digest = policy.digest(&pool.balance, seed, &members);
        Ok((policy, digest))
    };
    let (policy, digest) = tables(false)?;
    if !backends.iter().any(|backend| backend.backup) {
        return Ok(Tables { policy, backups: None, digest });
    }
    let (backups, of_backups) = tables(true)?;
    let digest = digest.zip(of_backups).map(|(a, b)| a ^ b.rotate_left(24) & DIGEST);
    Ok(Tables { policy, backups: Some(backups), digest })
}
