//! A listening UDP socket with its flows.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use super::super::account::Account;
use super::super::session::{Refusal as Refused, route};
use super::Gear;
use super::cargo::{Cargo, reason};
use super::flow::{Flow, Stage};
use crate::address::Address;
use crate::balance::key::Tuple;
use crate::config::Protocol;
use crate::flow::{Deadlines, FlowId, Key, Table};
use crate::limits::ATTEMPTS_MAX;
use crate::net::datagram::{Arrival, Batch, Listening, Trouble};
use crate::snapshot::{ListenSocket, Listener};
use crate::state::{Direction, DropReason, Termination};
use crate::wire::ClientHello;

/// A listening socket as its worker has it.
pub(super) struct Door {
    pub socket: Arc<ListenSocket>,
    /// What its flows get; a reload replaces it.
    pub listener: Arc<Listener>,
    pub index: usize,
    pub table: Table<Flow>,
    pub(super) listening: Listening,
    /// Flows whose hello is not complete, by when it must be.
    pub(super) unread: Deadlines,
    /// Flows that try a backend that is ejected, by when it has to have refused them.
    pub(super) trials: Deadlines,
    /// Datagrams that the kernel has dropped so far.
    kernel_drops: u32,
}

impl Door {
    pub fn new(
        socket: &Arc<ListenSocket>,
        listener: &Arc<Listener>,
        index: usize,
        listening: Listening,
    ) -> Self {
        Door {
            socket: socket.clone(),
            listener: listener.clone(),
            index,
            table: Table::new(Instant::now()),
            listening,
            unread: Deadlines::default(),
            trials: Deadlines::default(),
            kernel_drops: 0,
        }
    }

    /// Takes what waits at the listening socket, as much as fits into the worker's buffers.
    pub fn receive<'a>(
        &mut self,
        batch: &'a mut Batch,
    ) -> Option<impl Iterator<Item = Arrival<'a>> + use<'a>> {
        let received = self.listening.receive(batch);
        // It is gone with being told: the socket works on.
        let told = |error| tracing::debug!(listener = %self.listener.name, %error, "receiving");
        received.map_err(told).ok()
    }

    /// Takes what came from one client in a row.
    pub fn arrive(&mut self, gear: &mut Gear, arrival: &Arrival<'_>, now: Instant) {
        let local = arrival.local.unwrap_or_else(|| self.bound().ip());
        let key = Key::new(arrival.client, local);
        let each = self.listener.udp.per_packet
            || self.listener.udp.requests.is_some()
            || self.listener.sources.is_some()
            || self.listener.reads_hello;
        if each || arrival.train.count() == 1 {
            for datagram in arrival.train.datagrams() {
                self.arrive_as(gear, &key, Cargo::One(datagram), now);
            }
        } else {
            self.arrive_as(gear, &key, Cargo::Several(arrival.train), now);
        }
    }

    fn arrive_as(&mut self, gear: &mut Gear, key: &Key, cargo: Cargo<'_>, now: Instant) {
        let count = cargo.count();
        let client = key.client().ip();
        if self.listener.sources.as_ref().is_some_and(|sources| !sources.admits(client, now)) {
            return self.dropped(gear, DropReason::Rate, count);
        }
        let known = if self.listener.udp.per_packet { None } else { self.table.find(key) };
        let known = known.filter(|&id| !self.is_ordered_to_end(gear, id));
        match known {
            Some(id) => self.pass(gear, id, key, cargo, now),
            None => self.welcome(gear, key, cargo, now),
        }
    }

    /// Datagrams of a flow that is there.
    fn pass(&mut self, gear: &mut Gear, id: FlowId, key: &Key, cargo: Cargo<'_>, now: Instant) {
        self.table.touch(id, now);
        match self.table.get(id).map(|flow| &flow.stage) {
            Some(Stage::Relay(_)) => {
                self.used(gear, id, cargo.first(), now);
                self.follow(gear, id, key, now);
                self.send(gear, id, key, cargo, now);
            }
            Some(Stage::Preread(_)) => self.read(gear, id, key, cargo, now),
            Some(Stage::Arriving) | None => {}
        }
    }

    /// The first datagrams of a flow.
    fn welcome(&mut self, gear: &mut Gear, key: &Key, cargo: Cargo<'_>, now: Instant) {
        match self.open(gear, key, now) {
            Some(id) if self.listener.speaks_quic() => self.greet(gear, id, key, cargo, now),
            Some(id) => self.start(gear, id, key, cargo, now),
            None => self.dropped(gear, DropReason::Flow, cargo.count()),
        }
    }

    /// Routes a flow of which nothing is to be read, and sends its first datagrams.
    pub(super) fn start(
        &mut self,
        gear: &mut Gear,
        id: FlowId,
        key: &Key,
        cargo: Cargo<'_>,
        now: Instant,
    ) {
        if self.lead(gear, id, key, None, now) {
            self.send(gear, id, key, cargo, now);
        } else {
            self.dropped(gear, DropReason::Flow, cargo.count());
        }
    }

    /// Opens an account for a flow, and the flow itself if there is room for it.
    fn open(&mut self, gear: &mut Gear, key: &Key, now: Instant) -> Option<FlowId> {
        let local = SocketAddr::new(key.local(), self.bound().port());
        let account = Account::open(
            &gear.worker,
            &self.listener.state,
            Some(key.client()),
            &Address::Ip(local),
            Protocol::Udp,
        );
        let held = match self.admit(gear, &account, key, now) {
            Ok(held) => held,
            Err(termination) => {
                account.ends(termination);
                return None;
            }
        };
        let stage = Stage::Arriving;
        let (requests, responses, quic, connection, asked) = (0, 0, false, None, None);
        let flow =
            Flow { account, stage, requests, responses, quic, connection, asked, _held: held };
        Some(if self.listener.udp.per_packet {
            self.table.insert_detached(*key, flow, now)
        } else {
            self.table.insert(*key, flow, now)
        })
    }

    /// Routes the flow, and gives it a backend; false if it ends here.
    pub(super) fn lead(
        &mut self,
        gear: &mut Gear,
        id: FlowId,
        key: &Key,
        hello: Option<&ClientHello>,
        now: Instant,
    ) -> bool {
        let tuple = self.tuple(key, hello.and_then(|hello| hello.sni.as_deref()));
        let found = route(&self.listener, &tuple, hello, Some(key.client().ip()));
        let outcome = match found {
            Ok(pool) => {
                if let Some(flow) = self.table.get_mut(id) {
                    flow.account.routed(&pool.state);
                }
                self.attach(gear, id, &pool, &tuple, now)
            }
            Err(Refused::NoRoute) => Err(Termination::NoRoute),
            // pointsman sends no datagrams of its own.
            Err(Refused::Reject | Refused::Reset) => Err(Termination::Rejected),
        };
        outcome.map_err(|reason| self.end(gear, id, reason)).is_ok()
    }

    /// Sends datagrams to the flow's backend; to another one if that refuses them.
    pub(super) fn send(
        &mut self,
        gear: &mut Gear,
        id: FlowId,
        key: &Key,
        cargo: Cargo<'_>,
        now: Instant,
    ) {
        let mut refused_by = None;
        for _ in 0..ATTEMPTS_MAX {
            let flow = self.table.get_mut(id);
            let way = flow.and_then(|flow| Some((flow.way()?.lane, flow)));
            let Some((lane_id, flow)) = way else {
                // What it has sent before has ended it.
                return self.dropped(gear, DropReason::Flow, cargo.count());
            };
            let Some(lane) = gear.lanes.get_mut(lane_id) else { break };
            match cargo.send(&lane.upstream) {
                Ok(()) => {
                    lane.sent(now);
                    flow.vouches(lane, now);
                    flow.passed(Direction::In, cargo.count(), cargo.bytes());
                    return self.sent(gear, id);
                }
                // What is pending there is of a datagram before: this one has not been sent. Told
                // again, it is of this one.
                Err(trouble @ (Trouble::Refused | Trouble::Unreachable)) => {
                    self.refused(gear, lane_id, trouble);
                    if refused_by.replace(lane_id) == Some(lane_id) {
                        break;
                    }
                    self.follow(gear, id, key, now);
                }
                Err(trouble) => {
                    let Some(each) = cargo.singly(trouble) else {
                        return self.dropped(gear, reason(trouble), cargo.count());
                    };
                    return each.for_each(|cargo| self.send(gear, id, key, cargo, now));
                }
            }
        }
        self.dropped(gear, DropReason::Backend, cargo.count());
    }

    fn sent(&mut self, gear: &mut Gear, id: FlowId) {
        let udp = self.listener.udp;
        let Some(flow) = self.table.get(id) else { return };
        if udp.requests.is_some_and(|most| flow.requests >= most) {
            if udp.responses == Some(0) {
                return self.end(gear, id, Termination::Requests);
            }
            self.table.detach(id);
        } else if udp.per_packet && udp.responses == Some(0) {
            self.end(gear, id, Termination::Requests);
        }
    }

    /// Ends the flow, if it is there.
    pub fn end(&mut self, gear: &mut Gear, id: FlowId, reason: Termination) {
        let Some(mut flow) = self.table.remove(id) else { return };
        if let Stage::Preread(hello) = &flow.stage {
            flow.account.preread(None);
            self.dropped(gear, DropReason::Preread, hello.count());
        }
        flow.account.ends(reason);
        if let Stage::Relay(way) = &flow.stage {
            if let Some(lane) = gear.lanes.get_mut(way.lane) {
                flow.vouches(lane, Instant::now());
            }
            gear.lanes.leave(way.lane, reason);
        }
    }

    /// Ends all of them.
    pub fn end_all(&mut self, gear: &mut Gear, reason: Termination) {
        while let Some(id) = self.table.victim() {
            self.end(gear, id, reason);
        }
    }

    /// Ends those that somebody has told to.
    pub fn end_ordered(&mut self, gear: &mut Gear) {
        let given = |flow: &Flow| flow.account.entry().order.given();
        let ordered: Vec<_> =
            self.table.iter().filter_map(|flow| Some((flow.id, given(flow.value)?))).collect();
        ordered.into_iter().for_each(|(id, reason)| self.end(gear, id, reason));
    }

    fn is_ordered_to_end(&mut self, gear: &mut Gear, id: FlowId) -> bool {
        let order = self.table.get(id).and_then(|flow| flow.account.entry().order.given());
        order.inspect(|&reason| self.end(gear, id, reason)).is_some()
    }

    /// Ends the flows whose time is over.
    pub fn expire(&mut self, gear: &mut Gear, now: Instant) {
        while let Some(id) = self.table.expired(now, self.listener.timeouts.idle) {
            let most = self.listener.udp.requests;
            let flow = self.table.get(id);
            let all = flow.is_some_and(|flow| most.is_some_and(|most| flow.requests >= most));
            let reason = if all { Termination::Requests } else { Termination::IdleTimeout };
            self.end(gear, id, reason);
        }
        while let Some(id) = self.unread.take_due(now) {
            self.give_up_reading(gear, id, Termination::PrereadTimeout);
        }
        while let Some(id) = self.trials.take_due(now) {
            let Some(flow) = self.table.get_mut(id) else { continue };
            let lane = flow.way().and_then(|way| gear.lanes.get_mut(way.lane));
            if let Some(lane) = lane {
                flow.vouches(lane, now);
            }
        }
    }

    /// When [`Door::expire`] has something to do, if no datagram comes before.
    pub fn due(&self) -> Option<Instant> {
        let idle = self.table.next_expiry(self.listener.timeouts.idle);
        [idle, self.unread.next(), self.trials.next()].into_iter().flatten().min()
    }

    /// What hash policies look at.
    pub(super) fn tuple<'a>(&self, key: &Key, sni: Option<&'a str>) -> Tuple<'a> {
        let local = SocketAddr::new(key.local(), self.bound().port());
        Tuple { protocol: Protocol::Udp.number(), client: key.client(), local, sni }
    }

    fn bound(&self) -> SocketAddr {
        // A UDP listener is never bound to a unix socket.
        self.socket.local.ip().unwrap_or(SocketAddr::from(([0, 0, 0, 0], 0)))
    }

    pub(super) fn dropped(&self, gear: &Gear, reason: DropReason, count: u32) {
        if count == 0 {
            return;
        }
        self.listener.state.dropped(gear.worker.index, reason, u64::from(count));
    }

    /// Has another configuration of its listener from now on.
    pub fn replace(&mut self, listener: &Arc<Listener>) {
        self.listener = listener.clone();
    }

    /// Adds what the kernel has dropped since the last time to the counters.
    pub fn count_kernel_drops(&mut self, gear: &Gear) {
        let Ok(total) = self.listening.drops() else { return };
        let new = total.wrapping_sub(std::mem::replace(&mut self.kernel_drops, total));
        self.dropped(gear, DropReason::ReceiveBuffer, new);
    }
}
