//! What is sent on: one datagram, or a train of them in one go.

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
    pub fn send(&self, upstream: &Upstream) -> Result<(), Trouble> {
        let sent = match self {
            Cargo::One(datagram) => upstream.send(datagram),
            Cargo::Several(train) => upstream.send_train(train),
        };
        sent.map_err(|error| Trouble::of(&error))
    }

    /// Sends it to a client, from the address that this has used.
    pub fn send_back(
        &self,
        listening: &Listening,
        client: SocketAddr,
        local: IpAddr,
    ) -> Result<(), Trouble> {
        let sent = match self {
            Cargo::One(datagram) => listening.send_to(client, Some(local), datagram),
            Cargo::Several(train) => listening.send_train(client, Some(local), train),
        };
        sent.map_err(|error| Trouble::of(&error))
    }

    /// Its datagrams one by one, if that may help where together they have met this: see
    /// [`Upstream::send_train`].
    pub fn singly(&self, trouble: Trouble) -> Option<impl Iterator<Item = Cargo<'a>> + use<'a>> {
        match self {
            Cargo::Several(train) if train.count() > 1 => {
                let of_train = matches!(trouble, Trouble::TooLarge | Trouble::Other);
                of_train.then(|| train.datagrams().map(Cargo::One))
            }
            Cargo::One(_) | Cargo::Several(_) => None,
        }
    }
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
