//! QUIC: reading the hello of a new flow, and knowing a connection by its ids when its client comes
//! from another address.
//!
//! A client that is known by an id gets a flow of its own to the same backend. Answers to the old
//! address go on to that: whoever has seen an id can have datagrams sent to the backend, which
//! validates the new path, but cannot draw another client's answers to himself.

use std::sync::Arc;
use std::time::Instant;

use super::super::session::route;
use super::Gear;
use super::cargo::Cargo;
use super::door::Door;
use super::flow::Stage;
use super::hello::Hello;
use crate::flow::{FlowId, Key};
use crate::health::State;
use crate::limits::KNOWN_ALPN;
use crate::snapshot::{Lead, Pool};
use crate::state::{Asked, BackendState, Chosen, Connection, DropReason, Termination};
use crate::wire::ClientHello;
use crate::wire::quic::initial::{Answer, Reason};
use crate::wire::quic::packet::{Kind, Long};
use crate::wire::quic::{ConnectionId, Packet, server_id_of};

impl Door {
    /// The first datagram of a flow where connections are told apart by what they say.
    pub(super) fn greet(
        &mut self,
        gear: &mut Gear,
        id: FlowId,
        key: &Key,
        cargo: Cargo<'_>,
        now: Instant,
    ) {
        // What may open a connection is routed by its hello, whatever its id: otherwise an id that
        // was learned for one name would be a way around the routes of another.
        let may_open = self.listener.reads_hello && is_initial(cargo.first());
        if !may_open && self.go_on(gear, id, cargo.first(), now) {
            return self.send(gear, id, key, cargo, now);
        }
        if !self.listener.reads_hello {
            if let Some(flow) = self.table.get_mut(id) {
                flow.quic = matches!(Packet::parse(cargo.first()), Some(Packet::Long(_)));
            }
            return self.start(gear, id, key, cargo, now);
        }
        let hello = Hello::new(self.listener.preread.max_bytes, &gear.worker.process);
        if let Some(flow) = self.table.get_mut(id) {
            flow.stage = Stage::Preread(Box::new(hello));
        }
        self.unread.add(now + self.listener.preread.timeout, id);
        self.read(gear, id, key, cargo, now);
    }

    /// Puts a flow on the backend of the connection that its first datagram belongs to, if any.
    fn go_on(&mut self, gear: &mut Gear, id: FlowId, datagram: &[u8], now: Instant) -> bool {
        let Some(known) = self.known(gear, datagram, now) else { return false };
        if !self.rejoin(gear, id, &known.backend, now) {
            return false;
        }
        if let Some(flow) = self.table.get_mut(id) {
            flow.quic = true;
            flow.connection = known.id.map(|id| (id, known.chosen));
            if let Some(asked) = known.asked {
                flow.account.asked(&asked);
                flow.asked = Some(asked);
            }
        }
        self.used(gear, id, datagram, now);
        true
    }

    /// The connection that a packet belongs to.
    fn known(&self, gear: &Gear, datagram: &[u8], now: Instant) -> Option<Connection> {
        let ids = &gear.worker.process.connections;
        let listener = &self.listener.state;
        // A client makes the first id up, which says nothing by itself, and uses it no more once it
        // knows the server's.
        let (found, bytes, is_servers) = match Packet::parse(datagram)? {
            Packet::Short { after_first } => {
                (ids.find_prefix(listener, after_first, now), after_first, true)
            }
            Packet::Long(Long { dcid, kind, .. }) => {
                (ids.find(listener, dcid, now), dcid, kind == Kind::Handshake)
            }
        };
        if !is_servers {
            return found;
        }
        found.filter(|known| known.chosen != Chosen::ByClient).or_else(|| {
            let pools = self.listener.actions.iter().flat_map(Lead::pools);
            let named = |pool: &Arc<Pool>| pool.backend_named_by(bytes).cloned();
            let backend = pools.into_iter().find_map(named)?;
            // Nothing was learned of it.
            Some(Connection { backend, asked: None, id: None, chosen: Chosen::ByServer })
        })
    }

    /// Puts a flow on the backend of its connection; false if that has no place or is down.
    fn rejoin(
        &mut self,
        gear: &mut Gear,
        id: FlowId,
        backend: &Arc<BackendState>,
        now: Instant,
    ) -> bool {
        let Some(pool) = gear.worker.pool(&backend.pool) else { return false };
        if backend.state() == State::Down {
            return false;
        }
        let Ok(lease) = backend.lease() else { return false };
        if let Some(flow) = self.table.get_mut(id) {
            flow.account.routed(&pool.state);
        }
        self.settle(gear, id, &pool, lease, now).unwrap_or(false)
    }

    /// Reads one more datagram of an unfinished hello.
    pub(super) fn read(
        &mut self,
        gear: &mut Gear,
        id: FlowId,
        key: &Key,
        cargo: Cargo<'_>,
        now: Instant,
    ) {
        let Some(flow) = self.table.get_mut(id) else { return };
        let Stage::Preread(hello) = &mut flow.stage else { return };
        let answer = hello.read(cargo.first());
        let is_first = hello.count() == 1;
        match answer {
            // Together they may hold too much by now: see `keep_bound`.
            Answer::NeedMore => {}
            Answer::Hello(found) => {
                flow.quic = true;
                flow.asked = Some(Arc::new(Asked {
                    sni: found.sni.clone(),
                    alpn: found.alpn.at_most(KNOWN_ALPN),
                }));
                self.read_to_the_end(gear, id, key, Some(&found), now);
            }
            Answer::NotQuic | Answer::UnknownVersion => {
                self.read_to_the_end(gear, id, key, None, now);
            }
            // The rest of a handshake whose client has come to another address. Only the server
            // that has begun it can read that, and none takes it for the opening of another.
            Answer::Reject(Reason::Undecryptable | Reason::IdTooShort)
                if is_first && self.go_on(gear, id, cargo.first(), now) =>
            {
                self.send(gear, id, key, cargo, now);
            }
            Answer::Reject(reason) => {
                let (listener, client) = (&self.listener.name, key.client());
                tracing::debug!(%listener, %client, %reason, "hello rejected");
                self.give_up_reading(gear, id, Termination::PrereadInvalid);
            }
            Answer::TooLarge => self.give_up_reading(gear, id, Termination::PrereadTooLarge),
        }
    }

    /// It is known what the client asks for, if anything.
    fn read_to_the_end(
        &mut self,
        gear: &mut Gear,
        id: FlowId,
        key: &Key,
        found: Option<&ClientHello>,
        now: Instant,
    ) {
        let Some(flow) = self.table.get_mut(id) else { return };
        flow.account.preread(found);
        let before = std::mem::replace(&mut flow.stage, Stage::Arriving);
        let Stage::Preread(hello) = before else { return };
        let process = gear.worker.process.clone();
        let original = hello.original_id().filter(|_| found.is_some());
        let known = original.and_then(|id| process.connections.find(&self.listener.state, id, now));
        let again = known.as_ref().map(|known| &known.backend);
        let stays = again.is_some_and(|backend| self.stay(gear, id, key, found, backend, now));
        if !stays && !self.lead(gear, id, key, found, now) {
            return self.dropped(gear, DropReason::Flow, hello.count());
        }
        // Nobody takes the id of another connection by making up the same.
        if let (Some(original), None) = (original, again) {
            self.remember(gear, id, original, Chosen::ByClient, now);
        }
        for datagram in hello.datagrams() {
            self.send(gear, id, key, Cargo::One(datagram), now);
        }
    }

    /// Puts a flow whose hello has come before, from another address, on the backend it went to, if
    /// its route leads to that backend's pool.
    fn stay(
        &mut self,
        gear: &mut Gear,
        id: FlowId,
        key: &Key,
        hello: Option<&ClientHello>,
        backend: &Arc<BackendState>,
        now: Instant,
    ) -> bool {
        let tuple = self.tuple(key, hello.and_then(|hello| hello.sni.as_deref()));
        let pool = route(&self.listener, &tuple, hello, Some(key.client().ip()));
        pool.is_ok_and(|pool| pool.state.name == backend.pool)
            && self.rejoin(gear, id, backend, now)
    }

    /// Ends a flow if its hello is still incomplete.
    pub(super) fn give_up_reading(&mut self, gear: &mut Gear, id: FlowId, reason: Termination) {
        let flow = self.table.get(id);
        if flow.is_some_and(|flow| matches!(flow.stage, Stage::Preread(_))) {
            self.end(gear, id, reason);
        }
    }

    /// When the unfinished hello that is due first here began.
    fn oldest_hello(&mut self) -> Option<Instant> {
        while let Some(id) = self.unread.first() {
            if let Some(flow) = self.table.get(id)
                && let Stage::Preread(_) = &flow.stage
            {
                return Some(flow.account.started());
            }
            // It is complete by now, or has ended.
            self.unread.take_first();
        }
        None
    }

    /// Ends that one if all of the process hold more than they may; false if they do not.
    fn gives_way(&mut self, gear: &mut Gear) -> bool {
        let Some(oldest) = self.unread.first() else { return false };
        let flow = self.table.get_mut(oldest);
        let Some(Stage::Preread(hello)) = flow.map(|flow| &mut flow.stage) else { return false };
        if !hello.gives_way() {
            return false;
        }
        self.unread.take_first();
        self.give_up_reading(gear, oldest, Termination::Overload);
        true
    }

    /// Learns the connection id that the backend has chosen, from its handshake packets.
    pub(super) fn learn(&mut self, gear: &Gear, id: FlowId, cargo: Cargo<'_>, now: Instant) {
        let Some(flow) = self.table.get(id).filter(|flow| flow.quic) else { return };
        let Some(chosen) = server_id_of(cargo.first()) else { return };
        let is_known = |(known, whose): (ConnectionId, Chosen)| {
            whose != Chosen::ByClient && known.as_slice() == chosen
        };
        if !flow.connection.is_some_and(is_known) {
            self.remember(gear, id, chosen, Chosen::ByServer, now);
        }
    }

    /// Learns for good the id that the backend has chosen, once its client uses it.
    pub(super) fn used(&mut self, gear: &Gear, id: FlowId, datagram: &[u8], now: Instant) {
        let connection = self.table.get(id).and_then(|flow| flow.connection);
        let Some((connection, Chosen::ByServer)) = connection else { return };
        let uses = match Packet::parse(datagram) {
            Some(Packet::Short { after_first }) => after_first.starts_with(connection.as_slice()),
            Some(Packet::Long(Long { dcid, .. })) => dcid == connection.as_slice(),
            None => false,
        };
        if uses {
            self.remember(gear, id, connection.as_slice(), Chosen::AndUsed, now);
        }
    }

    fn remember(
        &mut self,
        gear: &Gear,
        id: FlowId,
        connection: &[u8],
        chosen: Chosen,
        now: Instant,
    ) {
        let Some(flow) = self.table.get_mut(id) else { return };
        let Stage::Relay(way) = &flow.stage else { return };
        let (ids, backend) = (&gear.worker.process.connections, way.place.lease.backend());
        let asked = flow.asked.as_ref();
        ids.learn(&self.listener.state, connection, chosen, backend, asked, now);
        flow.connection = ConnectionId::new(connection).map(|connection| (connection, chosen));
    }
}

/// Ends the oldest unfinished hellos of the worker until all of the process hold no more than they
/// may. Those of all doors: else a flood of one would leave no room for a hello at another.
pub(super) fn keep_bound(gear: &mut Gear) {
    while gear.worker.process.holds_too_many_quic_hellos() {
        let open = gear.doors.iter_mut().flatten();
        let begun = open.filter_map(|door| Some((door.oldest_hello()?, door.index)));
        let Some((_, index)) = begun.min() else { return };
        if gear.at_door(index, |door, gear| door.gives_way(gear)) != Some(true) {
            return;
        }
    }
}

fn is_initial(datagram: &[u8]) -> bool {
    matches!(Packet::parse(datagram), Some(Packet::Long(Long { kind: Kind::Initial, .. })))
}
