//! What is sent on: one datagram, or a train of them in one go.

use std::io;
use std::net::{IpAddr, SocketAddr};

use crate::net::datagram::{Listening, Train, Trouble, Upstream};
use crate::state::DropReason;

/// Datagrams of one client or backend in a row.
#[derive(Clone, Copy)]
pub(super) enum Cargo<'a> {
    One(&'a [u8]),
    Several(Train<'a>),
}

impl<'a> Cargo<'a> {
    pub fn count(&self) -> u32 {
        match self {
            Cargo::One(_) => 1,
            Cargo::Several(train) => u32::try_from(train.count()).unwrap_or(u32::MAX),
        }
    }

    pub fn bytes(&self) -> u64 {
        match self {
            Cargo::One(datagram) => datagram.len() as u64,
            Cargo::Several(train) => train.bytes() as u64,
        }
    }

    pub fn first(&self) -> &'a [u8] {
        match self {
            Cargo::One(datagram) => datagram,
            Cargo::Several(train) => train.datagrams().next().unwrap_or_default(),
        }
    }

    /// Sends it to a backend.
    pub fn send(&self, upstream: &Upstream) -> Result<Sent, Trouble> {
        let sent = match self {
            Cargo::One(datagram) => upstream.send(datagram).map(|()| 1),
            Cargo::Several(train) => upstream.send_train(train),
        };
        self.outcome(sent)
    }

    /// Sends it to a client, from the address that this has used.
    pub fn send_back(
        &self,
        listening: &Listening,
        client: SocketAddr,
        local: IpAddr,
    ) -> Result<Sent, Trouble> {
        let sent = match self {
            Cargo::One(datagram) => listening.send_to(client, Some(local), datagram).map(|()| 1),
            Cargo::Several(train) => listening.send_train(client, Some(local), train),
        };
        self.outcome(sent)
    }

    /// What came of it when so many of its datagrams were sent.
    pub fn outcome(&self, sent: io::Result<usize>) -> Result<Sent, Trouble> {
        let sent = sent.map_err(|error| Trouble::of(&error))?;
        let sent = u32::try_from(sent).unwrap_or(u32::MAX);
        let lost = self.count().saturating_sub(sent);
        // Only the last one of a train may be shorter.
        let bytes =
            if lost == 0 { self.bytes() } else { u64::from(sent) * self.first().len() as u64 };
        Ok(Sent { count: sent, bytes, lost })
    }
}

/// What became of a cargo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    pub count: u32,
    pub bytes: u64,
    /// Datagrams for which there was no room any more.
    pub lost: u32,
}

/// As what a datagram counts that could not be sent.
pub(super) fn reason(trouble: Trouble) -> DropReason {
    match trouble {
        Trouble::Refused | Trouble::Unreachable => DropReason::Backend,
        Trouble::TryAgain => DropReason::SendBuffer,
        Trouble::TooLarge => DropReason::TooLarge,
        Trouble::Other => DropReason::Other,
    }
}
