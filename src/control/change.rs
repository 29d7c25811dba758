//! What the operator wants of a backend, put in force.

use std::sync::Arc;

use super::Publisher;
use super::watch::{consider_panic, expect};
use crate::balance::BuildError;
use crate::health::State;
use crate::snapshot::{self, Backend};
use crate::state::{AdminState, BackendState, Change, Unchanged};

impl Publisher {
    /// Puts in force what the operator wants of a backend: all of it, or nothing.
    pub(super) async fn change(
        &mut self,
        pool: &str,
        backend: &str,
        change: Change,
    ) -> Result<Arc<BackendState>, Unchanged> {
        self.still_accepting().map_err(|_| Unchanged::Stopping)?;
        let snapshot = self.published.borrow().clone();
        let (pool, backend) = snapshot.backend(pool, backend)?;
        if let Some(weight) = change.weight {
            self.set_weight(backend, weight).await?;
        }
        if let Some(admin) = change.admin {
            self.set_admin(&pool.name, &backend.state, admin);
        }
        Ok(backend.state.clone())
    }

    /// Builds the tables of the same configuration again, with another weight, as a generation of
    /// its own.
    async fn set_weight(
        &mut self,
        backend: &Backend,
        weight: Option<u16>,
    ) -> Result<(), BuildError> {
        let state = &backend.state;
        let known = state.weight();
        if known == weight {
            return Ok(());
        }
        state.set_weight(weight);
        let weight = weight.unwrap_or(backend.configured_weight);
        if weight != backend.weight {
            let before = self.published.borrow().clone();
            let sockets = before.listeners.iter().map(|entrance| entrance.sockets.clone());
            let (config, generation) = (before.config.clone(), before.generation + 1);
            let registry = &self.process.registry;
            let snapshot = snapshot::build(config, generation, sockets.collect(), registry)
                .inspect_err(|_| state.set_weight(known))?;
            drop(before);
            self.checks.follow(&snapshot, &self.clients);
            self.publish(snapshot, consider_panic).await;
        }
        let overridden = state.weight().is_some();
        tracing::info!(
            pool = %state.pool, backend = %backend.name, weight, overridden,
            "backend changed by the operator"
        );
        Ok(())
    }

    fn set_admin(&mut self, pool: &str, state: &BackendState, admin: AdminState) {
        let before = state.admin();
        if before == admin {
            return;
        }
        let snapshot = self.published.borrow().clone();
        let Some(pool) = snapshot.pool(pool) else { return };
        if admin != AdminState::Ready {
            expect(pool, state, None);
        }
        state.set_admin(admin);
        if pool.health.is_some() && [before, admin].contains(&AdminState::Maintenance) {
            if admin != AdminState::Maintenance {
                // It may be in the middle of a reload, which has added others.
                self.checks.add(&snapshot, &self.clients);
            } else {
                self.checks.follow(&snapshot, &self.clients);
                // Nobody looks any more. When it is back the first check decides.
                state.set_state(State::Unknown);
            }
        }
        pool.weigh();
        consider_panic(pool);
        tracing::info!(
            pool = %pool.name, backend = %state.name(), %admin, %before, active = state.active(),
            "backend changed by the operator"
        );
    }
}
