//! One flow: what it holds while it lives, and how it ends.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::super::accept::Place as ProcessPlace;
use super::super::account::Account;
use super::super::place::Place;
use super::super::worker::Enrolled;
use super::hello::Hello;
use super::lanes::{Lane, LaneId};
use crate::state::{Asked, Chosen, Direction, FlowPlace, Process, SourcePlace};
use crate::wire::quic::ConnectionId;

/// A flow. Its account is closed, and its places are given back, when it is dropped.
pub(super) struct Flow {
    pub account: Account,
    pub stage: Stage,
    /// Datagrams passed on to the backend.
    pub requests: u32,
    /// Datagrams passed on to the client.
    pub responses: u32,
    /// It speaks QUIC: the ids that its backend chooses are learned.
    pub quic: bool,
    /// The last one learned, or the client's own before.
    pub connection: Option<(ConnectionId, Chosen)>,
    /// What its hello has asked for, to be known with its ids.
    pub asked: Option<Arc<Asked>>,
    pub _held: Held,
}

/// What it counts against: the worker's roll, its listener, the process, and its source where those
/// have limits.
pub(super) type Held = (Enrolled, FlowPlace, FlowOfProcess, Option<Box<SourcePlace>>);

/// One of the sessions that the process may have, and of the flows among them.
pub(super) struct FlowOfProcess {
    process: Arc<Process>,
    _session: ProcessPlace,
}

impl FlowOfProcess {
    /// One more, if there may be one.
    pub fn take(process: &Arc<Process>) -> Option<Self> {
        let session = ProcessPlace::take(process)?;
        let before = process.flows.0.fetch_add(1, Relaxed);
        let place = FlowOfProcess { process: process.clone(), _session: session };
        (before < process.max_flows.load(Relaxed)).then_some(place)
    }
}

impl Drop for FlowOfProcess {
    fn drop(&mut self) {
        self.process.flows.0.fetch_sub(1, Relaxed);
    }
}

/// How far it has come.
pub(super) enum Stage {
    /// It is not routed yet.
    Arriving,
    /// Its QUIC hello is not complete.
    Preread(Box<Hello>),
    /// It has a backend.
    Relay(Way),
}

/// A flow's way to its backend.
pub(super) struct Way {
    pub place: Place,
    pub lane: LaneId,
    /// The refusals on the lane that it knows of.
    pub refusals: u32,
    /// When it was given its backend.
    pub since: Instant,
    /// After so long without a refusal the backend has done well by it, answer or not.
    pub patience: Duration,
    /// The backend has answered.
    pub answered: bool,
}

impl Flow {
    pub fn way(&mut self) -> Option<&mut Way> {
        match &mut self.stage {
            Stage::Arriving | Stage::Preread(_) => None,
            Stage::Relay(way) => Some(way),
        }
    }

    /// Notes that the backend has sent something, `now`.
    pub fn answered(&mut self, now: Instant) {
        let Stage::Relay(way) = &mut self.stage else { return };
        if std::mem::replace(&mut way.answered, true) {
            return;
        }
        let took = now.saturating_duration_since(way.since);
        let worker = self.account.worker().clone();
        way.place.pool.first_byte_seconds.record(worker.index, took);
        way.place.took(now, took);
        way.place.answered(Ok(()), &worker.process);
        self.account.first_byte(Some(took));
    }

    /// Where the backend has taken what it got for long enough, that speaks for it: many never
    /// answer, and would stay ejected.
    pub fn vouches(&self, lane: &Lane, now: Instant) {
        let Stage::Relay(way) = &self.stage else { return };
        if !way.answered && lane.is_taken(now, way.patience) {
            way.place.answered(Ok(()), &self.account.worker().process);
        }
    }

    /// Counts datagrams that were sent on.
    pub fn passed(&mut self, direction: Direction, count: u32, bytes: u64) {
        let worker = self.account.worker().index;
        let entry = self.account.entry();
        entry.listener.datagrams(worker, direction, u64::from(count));
        self.account.passed(direction, bytes);
        if let Stage::Relay(way) = &self.stage {
            way.place.lease.backend().passed(worker, direction, bytes);
        }
        let counted = match direction {
            Direction::In => &mut self.requests,
            Direction::Out => &mut self.responses,
        };
        *counted = counted.saturating_add(count);
    }
}
