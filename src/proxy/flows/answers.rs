//! Answers of backends. Single ones are collected, to be sent to their clients together: a system
//! call for all of them costs a sixth less than one for each.

use std::io;
use std::time::Instant;

use super::Gear;
use super::cargo::{Cargo, reason};
use super::door::Door;
use super::lanes::{Lane, LaneId, User};
use crate::flow::{FlowId, Key};
use crate::net::datagram::{Batch, Reply, Trouble};
use crate::state::{Direction, DropReason, Termination};

/// What a worker has received, and whose it is as far as it waits to be sent.
#[derive(Default)]
pub(super) struct Answers {
    batch: Batch,
    /// Of each message in the batch, whose it is.
    users: Vec<User>,
    /// The door of them all.
    door: usize,
}

impl Answers {
    /// Whether what comes by this lane may be received while the others wait.
    pub fn have_room_for(&self, lane: &Lane) -> bool {
        let joins = lane.door == self.door && lane.upstream.expects_singles();
        self.users.is_empty() || joins && !self.batch.is_full()
    }

    /// Adds the answer that waits at a lane, which there must be room for.
    ///
    /// # Errors
    ///
    /// As of [`crate::net::datagram::Upstream::receive_single`].
    pub fn receive(&mut self, lane: &Lane) -> io::Result<()> {
        if self.users.is_empty() {
            self.batch.clear();
        }
        lane.upstream.receive_single(&mut self.batch)?;
        self.users.push(lane.user);
        self.door = lane.door;
        Ok(())
    }

    /// The door of those that wait, if any does.
    pub fn door(&self) -> Option<usize> {
        (!self.users.is_empty()).then_some(self.door)
    }

    /// Those that wait, in the order in which they came.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (User, &[u8])> {
        self.users.iter().enumerate().map(|(slot, &user)| (user, self.batch.bytes(slot)))
    }

    /// They have been sent.
    pub fn clear(&mut self) {
        self.users.clear();
    }

    /// The room for something else, while nothing waits.
    pub fn batch(&mut self) -> &mut Batch {
        debug_assert!(self.users.is_empty());
        &mut self.batch
    }
}

impl Door {
    /// Takes what waits at a socket to a backend, and answers the client; a single answer is left
    /// among `answers`. What does not fit into the worker's buffers is reported again.
    pub fn answer(
        &mut self,
        gear: &mut Gear,
        answers: &mut Answers,
        lane_id: LaneId,
        now: Instant,
    ) {
        let Some(lane) = gear.lanes.get_mut(lane_id) else { return };
        let user = lane.user;
        let received = if lane.upstream.expects_singles() {
            answers.receive(lane)
        } else {
            lane.upstream.receive(answers.batch()).map(|trains| {
                trains.for_each(|train| self.hand_back(gear, user, Cargo::Several(train), now));
            })
        };
        match received {
            Ok(()) => {
                gear.lanes.received(lane_id);
                if user == User::Resting {
                    gear.lanes.strayed(lane_id);
                }
            }
            Err(error) => match Trouble::of(&error) {
                trouble @ (Trouble::Refused | Trouble::Unreachable) => {
                    self.refused(gear, lane_id, trouble);
                }
                // What was told is gone: the socket works on.
                Trouble::TryAgain | Trouble::TooLarge | Trouble::Other => {}
            },
        }
    }

    fn hand_back(&mut self, gear: &mut Gear, user: User, cargo: Cargo<'_>, now: Instant) {
        let Some((id, key)) = self.taker(gear, user, cargo, now) else { return };
        let sent = cargo.send_back(&self.listening, key.client(), key.local());
        match sent.err().and_then(|trouble| cargo.singly(trouble)) {
            None => self.handed_back(gear, id, cargo, sent, now),
            Some(each) => each.for_each(|cargo| self.hand_back(gear, user, cargo, now)),
        }
    }

    /// Hands single answers back together.
    pub fn hand_back_all<'a>(
        &mut self,
        gear: &mut Gear,
        mut answers: impl ExactSizeIterator<Item = (User, &'a [u8])>,
        now: Instant,
    ) {
        if answers.len() == 1 {
            let only = answers.next();
            return only.into_iter().for_each(|(user, datagram)| {
                self.hand_back(gear, user, Cargo::One(datagram), now);
            });
        }
        let taken = answers.filter_map(|(user, datagram)| {
            let (id, key) = self.taker(gear, user, Cargo::One(datagram), now)?;
            Some((id, Reply { client: key.client(), local: Some(key.local()), datagram }))
        });
        let (ids, replies): (Vec<_>, Vec<_>) = taken.unzip();
        let outcomes = self.listening.send_many(&replies);
        for ((id, reply), outcome) in ids.into_iter().zip(&replies).zip(outcomes) {
            let sent = outcome.map_err(|error| Trouble::of(&error));
            self.handed_back(gear, id, Cargo::One(reply.datagram), sent, now);
        }
    }

    /// The flow that waits for this.
    fn taker(
        &mut self,
        gear: &Gear,
        user: User,
        cargo: Cargo<'_>,
        now: Instant,
    ) -> Option<(FlowId, Key)> {
        let flow = match user {
            User::Flow(id) => self.table.flow(id).map(|flow| (id, flow.key)),
            User::Senders(_) | User::Resting => None,
        };
        match flow {
            Some((id, _)) => self.learn(gear, id, cargo, now),
            None => self.dropped(gear, DropReason::Unexpected, cargo.count()),
        }
        flow
    }

    fn handed_back(
        &mut self,
        gear: &mut Gear,
        id: FlowId,
        cargo: Cargo<'_>,
        sent: Result<(), Trouble>,
        now: Instant,
    ) {
        self.table.answered(id, now);
        let Some(flow) = self.table.get_mut(id) else { return };
        flow.answered(now);
        match sent {
            Ok(()) => flow.passed(Direction::Out, cargo.count(), cargo.bytes()),
            Err(trouble) => {
                flow.responses = flow.responses.saturating_add(cargo.count());
                self.dropped(gear, reason(trouble), cargo.count());
            }
        }
        let Some(flow) = self.table.get(id) else { return };
        let udp = self.listener.udp;
        let asked = udp.requests.is_none_or(|most| flow.requests >= most);
        let expected = |most: u32| u64::from(most) * u64::from(flow.requests);
        let all = |most| u64::from(flow.responses) >= expected(most);
        if asked && udp.responses.is_some_and(all) {
            self.end(gear, id, Termination::Responses);
        }
    }
}
