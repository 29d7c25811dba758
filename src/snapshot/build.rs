//! From a valid configuration to a snapshot.

use std::sync::Arc;

use super::pool::{Backend, Pool};
use super::{Entrance, ListenSocket, Listener, Snapshot};
use crate::balance::{BuildError, Member, Policy};
use crate::config::{self, Config};
use crate::health::State;
use crate::state::Registry;

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
            let listener = Listener {
                name: listener.name.clone(),
                timeouts: listener.timeouts,
                pool: pools[listener.pool].clone(),
                state: registry.listener(&listener.name),
            };
            Entrance { listener: Arc::new(listener), sockets }
        })
        .collect();
    Ok(Snapshot { generation, config, listeners, pools })
}

fn build_pool(pool: &config::Pool, seed: u64, registry: &Registry) -> Result<Pool, BuildError> {
    // The order of the file means nothing: hash policies must pick alike on every instance.
    let mut keyed: Vec<(String, &config::Backend)> =
        pool.backends.iter().map(|b| (b.address.to_string(), b)).collect();
    keyed.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    let members: Vec<Member<'_>> =
        keyed.iter().map(|(key, b)| Member { key, weight: b.weight }).collect();
    let policy = Policy::new(&pool.balance, &members)?;
    // What is not checked counts as up.
    let first = if pool.health.is_some() { State::Unknown } else { State::Up };
    let backends = keyed
        .iter()
        .map(|(_, backend)| Backend {
            name: backend.name.clone(),
            weight: backend.weight,
            state: registry.backend(&pool.name, &backend.name, &backend.address, first),
        })
        .collect();
    Ok(Pool {
        name: pool.name.clone(),
        spec: pool.balance,
        policy,
        hash_seed: seed,
        backends,
        connect: pool.connect,
        health: pool.health,
        panic_threshold: pool.panic_threshold,
        state: registry.pool(&pool.name),
    })
}
