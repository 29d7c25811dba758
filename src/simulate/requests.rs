//! Requests under way.

use std::ops::{Index, IndexMut};
use std::time::Duration;

use super::draws::Draw;
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
    /// On the way to a backend, or back.
    Travelling,
    /// In a slot or in line.
    Inside,
}

/// A request under way.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub draw: Draw,
    /// What the policy hashes; 0 where it does not.
    pub hash: u64,
    /// When the client sent it.
    pub issued: Duration,
    /// When the attempt under way began.
    pub begun: Duration,
    /// The backend it is at, or on the way to or from.
    pub backend: usize,
    pub stage: Stage,
    pub tried: Tried,
}

/// The backends that one request could not connect to.
#[derive(Clone, Debug, Default)]
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
