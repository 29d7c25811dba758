//! The sockets to backends. Each is connected, so that the kernel tells of ICMP errors and takes
//! answers from nobody else, and belongs to one flow; or to all flows that expect no answer from
//! the same backend; or to nobody, after an exchange that has had all its answers.

use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use ahash::AHashMap;

use super::Watch;
use crate::address::Address;
use crate::flow::FlowId;
use crate::limits::LANES_RESTING;
use crate::net::datagram::Upstream;
use crate::state::BackendState;

/// So many receives in a row are a burst: no answers to single questions.
const BURST: u8 = 4;

/// Which lane: its slot, and how many lanes that had before. Also what epoll says of its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LaneId(u64);

impl LaneId {
    pub fn from_event(data: u64) -> Self {
        LaneId(data)
    }

    fn new(index: usize, generation: u32) -> Self {
        // Slots are fewer than descriptors, and the highest bit is for listening sockets.
        LaneId(u64::from(generation) << 32 | index as u64)
    }

    fn index(self) -> usize {
        (self.0 & u64::from(u32::MAX)) as usize
    }

    fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// Whose answers come by a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum User {
    /// This flow's.
    Flow(FlowId),
    /// Nobody's: so many flows send, and expect no answer.
    Senders(u32),
    /// Nobody's: it rests until the next exchange.
    Resting,
}

/// A socket to a backend.
pub(super) struct Lane {
    pub upstream: Upstream,
    pub backend: Arc<BackendState>,
    /// The door of its flows.
    pub door: usize,
    pub user: User,
    /// How often the kernel has said that the backend does not take datagrams.
    pub refusals: u32,
    /// How often something came since something was last sent.
    pub in_a_row: u8,
}

/// All lanes of a worker.
pub(super) struct Lanes {
    watch: Rc<Watch>,
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// By door and backend.
    shared: AHashMap<(usize, *const BackendState), LaneId>,
    resting: AHashMap<(usize, *const BackendState), VecDeque<LaneId>>,
}

#[derive(Default)]
struct Slot {
    /// Fewer than 2³¹: see [`LaneId`].
    generation: u32,
    lane: Option<Lane>,
}

impl Lanes {
    pub fn new(watch: Rc<Watch>) -> Self {
        Lanes {
            watch,
            slots: Vec::new(),
            free: Vec::new(),
            shared: AHashMap::new(),
            resting: AHashMap::new(),
        }
    }

    pub fn get_mut(&mut self, id: LaneId) -> Option<&mut Lane> {
        let slot = self.slots.get_mut(id.index())?;
        if slot.generation == id.generation() { slot.lane.as_mut() } else { None }
    }

    /// A lane of its own for a flow.
    pub fn open(
        &mut self,
        door: usize,
        flow: FlowId,
        backend: &Arc<BackendState>,
    ) -> io::Result<LaneId> {
        self.add(door, User::Flow(flow), backend)
    }

    /// The lane of the flows that expect no answer from this backend.
    pub fn join(&mut self, door: usize, backend: &Arc<BackendState>) -> io::Result<LaneId> {
        let key = (door, Arc::as_ptr(backend));
        if let Some(&id) = self.shared.get(&key)
            && let Some(Lane { user: User::Senders(count), .. }) = self.get_mut(id)
        {
            *count += 1;
            return Ok(id);
        }
        let id = self.add(door, User::Senders(1), backend)?;
        self.shared.insert(key, id);
        Ok(id)
    }

    /// A lane for one exchange: the one that has rested longest, or another.
    pub fn borrow(
        &mut self,
        door: usize,
        flow: FlowId,
        backend: &Arc<BackendState>,
    ) -> io::Result<LaneId> {
        let key = (door, Arc::as_ptr(backend));
        while let Some(id) = self.resting.get_mut(&key).and_then(VecDeque::pop_front) {
            // Some have been closed meanwhile.
            if let Some(lane) = self.get_mut(id) {
                lane.user = User::Flow(flow);
                return Ok(id);
            }
        }
        self.open(door, flow, backend)
    }

    /// Datagrams were received. Where they come in bursts, they are taken in bursts.
    pub fn received(&mut self, id: LaneId) {
        let Some(lane) = self.get_mut(id) else { return };
        lane.in_a_row = lane.in_a_row.saturating_add(1);
        if lane.in_a_row >= BURST {
            lane.upstream.expect_bursts();
        }
    }

    /// A flow has no more use for it; `clean` if nothing more can come for that flow.
    pub fn leave(&mut self, id: LaneId, clean: bool) {
        let Some(lane) = self.get_mut(id) else { return };
        let key = (lane.door, Arc::as_ptr(&lane.backend));
        match &mut lane.user {
            User::Senders(count) if *count > 1 => *count -= 1,
            User::Senders(_) => {
                self.shared.remove(&key);
                self.close(id);
            }
            User::Flow(_) if clean => self.rest(key, id),
            User::Flow(_) | User::Resting => self.close(id),
        }
    }

    /// Closes what rests: the configuration has changed.
    pub fn close_resting(&mut self) {
        let resting = std::mem::take(&mut self.resting);
        resting.into_values().flatten().for_each(|id| self.close(id));
    }

    fn rest(&mut self, key: (usize, *const BackendState), id: LaneId) {
        let resting = self.resting.entry(key).or_default();
        if resting.len() >= LANES_RESTING {
            return self.close(id);
        }
        resting.push_back(id);
        if let Some(lane) = self.get_mut(id) {
            lane.user = User::Resting;
        }
    }

    fn add(&mut self, door: usize, user: User, backend: &Arc<BackendState>) -> io::Result<LaneId> {
        let Address::Ip(address) = backend.address else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let upstream = Upstream::connect(address)?;
        let index = self.free.last().copied().unwrap_or(self.slots.len());
        let generation = self.slots.get(index).map_or(0, |slot| slot.generation);
        let id = LaneId::new(index, generation);
        self.watch.get_ref().add(&upstream, id.0)?;
        let backend = backend.clone();
        let lane = Lane { upstream, backend, door, user, refusals: 0, in_a_row: 0 };
        if self.free.pop().is_none() {
            self.slots.push(Slot::default());
        }
        self.slots[index].lane = Some(lane);
        Ok(id)
    }

    /// The kernel forgets a descriptor that is closed.
    fn close(&mut self, id: LaneId) {
        let slot = &mut self.slots[id.index()];
        if slot.generation == id.generation() && slot.lane.take().is_some() {
            slot.generation = (slot.generation + 1) & (u32::MAX >> 1);
            self.free.push(id.index());
        }
    }
}
