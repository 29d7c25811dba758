//! From a valid configuration to a snapshot.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use super::pool::{Backend, Pool};
use super::{Entrance, Lead, ListenSocket, Listener, Snapshot};
use crate::balance::key::KeyKind;
use crate::balance::{BuildError, Member, Policy};
use crate::config::{self, Action, Config};
use crate::health::State;
use crate::route::Routes;
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
            let listener = build_listener(listener, &pools, registry);
            Entrance { listener: Arc::new(listener), sockets }
        })
        .collect();
    Ok(Snapshot { generation, config, listeners, pools })
}

fn build_listener(
    listener: &config::Listener,
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
    let actions: Vec<Lead> = listener.routes.iter().map(|route| lead(&route.action)).collect();
    let by_name = |pool: &Arc<Pool>| pool.spec.policy.hashes() && pool.spec.key == KeyKind::Sni;
    let hashes_name = actions.iter().flat_map(Lead::pools).any(by_name);
    // The alert is for those who speak TLS.
    let rejects = actions.iter().any(|lead| matches!(lead, Lead::Reject));
    Listener {
        name: listener.name.clone(),
        timeouts: listener.timeouts,
        preread: listener.preread,
        reads_hello: listener.preread.always || routes.needs_hello() || hashes_name || rejects,
        routes,
        actions,
        state: registry.listener(&listener.name),
    }
}

fn build_pool(pool: &config::Pool, seed: u64, registry: &Registry) -> Result<Pool, BuildError> {
    // The order of the file means nothing: hash policies must pick alike on every instance.
    let mut keyed: Vec<(String, &config::Backend)> =
        pool.backends.iter().map(|b| (b.address.to_string(), b)).collect();
    keyed.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    let members: Vec<Member<'_>> =
        keyed.iter().map(|(key, b)| Member { key, weight: b.weight }).collect();
    let policy = Policy::new(&pool.balance, &members)?;
    let digest = policy.digest(&pool.balance, seed, &members);
    let state = registry.pool(&pool.name);
    // What is not checked counts as up.
    let first = if pool.health.is_some() { State::Unknown } else { State::Up };
    let backends = keyed
        .iter()
        .map(|(_, backend)| Backend {
            name: backend.name.clone(),
            weight: backend.weight,
            state: registry.backend(&state, &backend.name, &backend.address, first),
        })
        .collect();
    let built = Pool {
        name: pool.name.clone(),
        spec: pool.balance,
        policy,
        digest,
        hash_seed: seed,
        backends,
        up_weight: AtomicU32::new(0),
        connect: pool.connect,
        health: pool.health.clone(),
        panic_threshold: pool.panic_threshold,
        state,
    };
    built.weigh();
    Ok(built)
}
