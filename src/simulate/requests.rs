//! Requests under way.

use std::ops::{Index, IndexMut};
use std::time::Duration;

use super::draws::Draw;
use crate::health::outlier::Claim;
use crate::limits::{ATTEMPTS_MAX, SIMULATE_IN_FLIGHT};

/// Which one. Used again for another once it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestId(pub u32);

const _: () = assert!(SIMULATE_IN_FLIGHT <= u32::MAX as usize);

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Nowhere: it is done.
    Done,
    /// No backend has it yet.
    Connecting,
    /// In a slot or in line.
    Inside,
    /// On the way back, or lost and not given up yet.
    Leaving,
}

/// A request under way.
#[derive(Debug)]
pub(super) struct Request {
    pub draw: Draw,
    /// What the policy hashes; 0 where it does not.
    pub hash: u64,
    /// When the client sent it.
    pub issued: Duration,
    pub stage: Stage,
    pub race: Race,
    /// The backend that has it, once one does.
    pub backend: usize,
    /// When the attempt that brought it there began.
    pub begun: Duration,
}

/// The attempts of one request.
#[derive(Debug, Default)]
pub(super) struct Race {
    /// Backends that are not to be tried again.
    pub tried: Tried,
    /// Attempts made so far.
    pub made: usize,
    /// How often all backends have been tried.
    pub rounds: u32,
    /// Attempts under way, the oldest first.
    pub pending: Vec<Attempt>,
    /// The number of the last attempt.
    pub latest: u64,
    /// When the next attempt starts beside those under way.
    pub hedge_at: Option<Duration>,
    /// When all attempts are given up.
    pub ends: Duration,
}

/// An attempt that is under way, with its place on a backend.
#[derive(Debug)]
pub(super) struct Attempt {
    /// Of all attempts of the run: what is due of one that is over is about no other.
    pub number: u64,
    pub index: usize,
    pub begun: Duration,
    /// If it tries an ejected backend.
    pub claim: Option<Claim>,
}

impl Race {
    /// Whether this attempt is under way.
    pub fn is_pending(&self, number: u64) -> bool {
        self.pending.iter().any(|attempt| attempt.number == number)
    }

    /// Takes an attempt out that is under way.
    pub fn remove(&mut self, number: u64) -> Option<Attempt> {
        let at = self.pending.iter().position(|attempt| attempt.number == number)?;
        Some(self.pending.remove(at))
    }
}

/// The backends that one request has been to.
#[derive(Debug, Default)]
pub(super) struct Tried {
    indices: [u16; ATTEMPTS_MAX],
    count: usize,
}

impl Tried {
    /// Adds one; there are never more attempts than room.
    pub fn add(&mut self, index: usize) {
        if let (Ok(index), Some(place)) = (u16::try_from(index), self.indices.get_mut(self.count)) {
            *place = index;
            self.count += 1;
        }
    }

    /// Forgets all: they may be tried again.
    pub fn clear(&mut self) {
        self.count = 0;
    }

    pub fn count(&self) -> usize {
        self.count
    }

    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.indices[..self.count].iter().map(|&index| usize::from(index))
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Requests {
    places: Vec<Request>,
    free: Vec<RequestId>,
}

impl Requests {
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Places that are or were in use.
    pub fn places(&self) -> usize {
        self.places.len()
    }

    pub fn insert(&mut self, request: Request) -> RequestId {
        if let Some(id) = self.free.pop() {
            self[id] = request;
            return id;
        }
        self.places.push(request);
        RequestId(self.places.len() as u32 - 1)
    }

    pub fn remove(&mut self, id: RequestId) {
        self[id].stage = Stage::Done;
        self.free.push(id);
    }

    /// Those inside of a backend.
    pub fn inside(&self, backend: usize) -> Vec<RequestId> {
        let inside =
            |request: &Request| request.stage == Stage::Inside && request.backend == backend;
        let ids = (0u32..).zip(&self.places).filter(|(_, request)| inside(request));
        ids.map(|(id, _)| RequestId(id)).collect()
    }
}

impl Index<RequestId> for Requests {
    type Output = Request;

    fn index(&self, id: RequestId) -> &Request {
        &self.places[id.0 as usize]
    }
}

impl IndexMut<RequestId> for Requests {
    fn index_mut(&mut self, id: RequestId) -> &mut Request {
        &mut self.places[id.0 as usize]
    }
}
