//! Giving a flow its backend, and another one when the first does not take its datagrams.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::accept::is_shortage;
use super::super::place::{Place, met_ahead};
use super::Gear;
use super::door::Door;
use super::flow::{Flow, Stage, Way};
use super::lanes::{LaneId, User};
use super::room::Lack;
use crate::balance::key::Tuple;
use crate::flow::{FlowId, Key};
use crate::health::State;
use crate::health::outlier::Failure;
use crate::limits::{ATTEMPTS_MAX, PORTS_GIVEN_UP};
use crate::net::datagram::Trouble;
use crate::snapshot::{Pick, Pool, Tried};
use crate::state::{AttemptOutcome, BackendState, ConnectFailure, Lease, Termination};

/// What a flow does with a socket to its backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// Its own, as long as it lives.
    Own,
    /// So many answers, and no more.
    Exchange,
    /// No answer: all such flows have one together.
    SendOnly,
}

impl Door {
    fn lane_use(&self) -> Use {
        match self.listener.udp.responses {
            None => Use::Own,
            Some(0) => Use::SendOnly,
            Some(_) => Use::Exchange,
        }
    }

    /// Whether a flow has a socket of its own.
    pub(super) fn has_socket(&self, id: FlowId) -> bool {
        let relayed = |flow: &Flow| matches!(flow.stage, Stage::Relay(_));
        self.lane_use() != Use::SendOnly && self.table.get(id).is_some_and(relayed)
    }

    /// Gives the flow a backend of the pool.
    ///
    /// # Errors
    ///
    /// [`Termination::NoBackend`] if there is none to be had, [`Termination::Overload`] if the pool
    /// or the process has as much as it may, [`Termination::ConnectFailed`] if no attempt went well.
    pub(super) fn attach(
        &mut self,
        gear: &mut Gear,
        id: FlowId,
        pool: &Arc<Pool>,
        tuple: &Tuple<'_>,
        now: Instant,
    ) -> Result<(), Termination> {
        let mut tried = Tried::default();
        while tried.count() < pool.connect.attempts {
            let hash = || pool.spec.key.hash(tuple, pool.hash_seed);
            match gear.worker.with_rng(|rng| pool.pick(&tried, hash, rng)) {
                Pick::Backend(index, lease) => {
                    tried.add(index);
                    if self.settle(gear, id, pool, lease, now)? {
                        return Ok(());
                    }
                }
                Pick::PoolFull => return Err(Termination::Overload),
                Pick::BackendsFull | Pick::Nothing if tried.count() == 0 => {
                    pool.state.no_backend(gear.worker.index);
                    return Err(Termination::NoBackend);
                }
                Pick::BackendsFull | Pick::Nothing => break,
            }
        }
        Err(Termination::ConnectFailed)
    }

    /// Puts the flow on the backend of the lease; false if that cannot be sent to.
    pub(super) fn settle(
        &mut self,
        gear: &mut Gear,
        id: FlowId,
        pool: &Pool,
        lease: Lease,
        now: Instant,
    ) -> Result<bool, Termination> {
        let backend = lease.backend().clone();
        let lane = match self.lane(gear, id, &backend) {
            Ok(lane) => lane,
            Err(error) => {
                self.cannot_reach(gear, id, pool, &backend, &error);
                return if is_shortage(&error) { Err(Termination::Overload) } else { Ok(false) };
            }
        };
        let refusals = gear.lanes.get_mut(lane).map_or(0, |lane| lane.refusals);
        let place = Place::new(lease, pool);
        place.awaits_answer(pool.outlier.as_ref());
        backend.connected(gear.worker.index);
        let Some(flow) = self.table.get_mut(id) else { return Ok(false) };
        let patience = pool.connect.timeout;
        if pool.outlier.is_some() && backend.state() == State::Ejected {
            self.trials.add(now + patience, id);
        }
        flow.account.attempted(&backend.name(), AttemptOutcome::Connected, Duration::ZERO);
        flow.account.entry().comes_to(crate::state::Stage::Relaying(backend));
        let way = Way { place, lane, refusals, since: now, patience, answered: false };
        if let Stage::Relay(before) = std::mem::replace(&mut flow.stage, Stage::Relay(way)) {
            gear.lanes.leave(before.lane, Termination::BackendDown);
        }
        Ok(true)
    }

    fn lane(
        &mut self,
        gear: &mut Gear,
        id: FlowId,
        backend: &Arc<BackendState>,
    ) -> io::Result<LaneId> {
        let (usage, door) = (self.lane_use(), self.index);
        let open = |gear: &mut Gear| match usage {
            Use::Own => gear.lanes.open(door, id, backend),
            Use::Exchange => gear.lanes.borrow(door, id, backend),
            Use::SendOnly => gear.lanes.join(door, backend),
        };
        for attempt in 1..ATTEMPTS_MAX {
            let error = match open(gear) {
                Err(error) if is_shortage(&error) || is_of_ports(&error) => error,
                opened => return opened,
            };
            // Whoever is least missed gives up a descriptor and a port. Another worker may be the
            // quicker one to take it; if it is again and again, there have to be enough for both.
            let meanwhile = "no socket for a flow: those least missed make room";
            gear.worker.warn_of_shortage(&self.listener.name, &error, meanwhile);
            let most = match attempt {
                _ if is_of_ports(&error) => PORTS_GIVEN_UP,
                ..=4 => 1,
                _ => PORTS_GIVEN_UP.min(1 << (attempt - 4)),
            };
            let mut make_room = || self.make_room(gear, Some(id), Lack::Sockets);
            if (0..most).take_while(|_| make_room()).count() == 0 {
                return Err(error);
            }
        }
        open(gear)
    }

    fn cannot_reach(
        &mut self,
        gear: &Gear,
        id: FlowId,
        pool: &Pool,
        backend: &Arc<BackendState>,
        error: &io::Error,
    ) {
        let failure = match Trouble::of(error) {
            _ if is_of_ports(error) => ConnectFailure::LocalPorts,
            trouble => failure(trouble),
        };
        backend.connect_failed(gear.worker.index, failure);
        if matches!(failure, ConnectFailure::Refused | ConnectFailure::Unreachable) {
            met_ahead(pool, backend, Err(Failure::Connect), &gear.worker.process);
        }
        if let Some(flow) = self.table.get_mut(id) {
            let outcome = AttemptOutcome::Failed(failure);
            flow.account.attempted(&backend.name(), outcome, Duration::ZERO);
        }
    }

    /// Gives the flow another backend if it has reason to: its own has refused datagrams, or is
    /// down. Where there is no better one it stays.
    pub(super) fn follow(&mut self, gear: &mut Gear, id: FlowId, key: &Key, now: Instant) {
        let Some(flow) = self.table.get_mut(id) else { return };
        let Some(way) = flow.way() else { return };
        let refusals = gear.lanes.get_mut(way.lane).map_or(way.refusals, |lane| lane.refusals);
        let refused = std::mem::replace(&mut way.refusals, refusals) != refusals;
        let backend = way.place.lease.backend().clone();
        if !refused && backend.state() != State::Down {
            return;
        }
        let Some(pool) = gear.worker.pool(&backend.pool) else { return };
        let mut tried = Tried::default();
        let own = pool.backends.iter().position(|b| Arc::ptr_eq(&b.state, &backend));
        own.into_iter().for_each(|index| tried.add(index));
        let entry = flow.account.entry().clone();
        let tuple = self.tuple(key, entry.sni());
        let hash = || pool.spec.key.hash(&tuple, pool.hash_seed);
        let picked = gear.worker.with_rng(|rng| pool.pick(&tried, hash, rng));
        if let Pick::Backend(_, lease) = picked
            // In panic one that is down is as good as another.
            && (refused || lease.backend().state() != State::Down)
        {
            // A shortage of our own leaves it where it is.
            let _stays = self.settle(gear, id, &pool, lease, now);
        }
    }

    /// The kernel says that the backend of a lane does not take datagrams.
    pub(super) fn refused(&mut self, gear: &mut Gear, lane: LaneId, trouble: Trouble) {
        let (worker, process) = (gear.worker.index, gear.worker.process.clone());
        let Some(known) = gear.lanes.get_mut(lane) else { return };
        known.refused();
        let (backend, user) = (known.backend.clone(), known.user);
        backend.connect_failed(worker, failure(trouble));
        let pool = gear.worker.pool(&backend.pool);
        let flow = match user {
            User::Flow(id) => self.table.get_mut(id),
            User::Senders(_) | User::Resting => None,
        };
        match flow {
            Some(flow) => flow.refused(pool.as_deref(), failure(trouble), &process),
            None => {
                if let Some(pool) = pool {
                    met_ahead(&pool, &backend, Err(Failure::Connect), &process);
                }
            }
        }
    }
}

impl Flow {
    fn refused(
        &mut self,
        pool: Option<&Pool>,
        failure: ConnectFailure,
        process: &crate::state::Process,
    ) {
        let Stage::Relay(way) = &self.stage else { return };
        let outlier = pool.and_then(|pool| pool.outlier.as_ref());
        way.place.failed(Failure::Connect, outlier, process);
        let outcome = AttemptOutcome::Failed(failure);
        let backend = way.place.lease.backend().name();
        self.account.attempted(&backend, outcome, way.since.elapsed());
    }
}

fn is_of_ports(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrNotAvailable
}

fn failure(trouble: Trouble) -> ConnectFailure {
    match trouble {
        Trouble::Refused => ConnectFailure::Refused,
        Trouble::Unreachable => ConnectFailure::Unreachable,
        Trouble::TryAgain | Trouble::TooLarge | Trouble::Other => ConnectFailure::Other,
    }
}
