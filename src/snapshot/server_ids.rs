//! Backends by the connection ids that they make (QUIC-LB).

use std::sync::Arc;

use ahash::AHashMap;

use super::pool::{Backend, Pool};
use crate::config::{self, Secret};
use crate::state::BackendState;
use crate::wire::quic::lb::{Routable, ServerId};

/// How to read connection ids, and which backend each server is.
#[derive(Debug)]
pub(super) struct ServerIds {
    routable: Routable,
    /// Indices of the pool's backends.
    backends: AHashMap<ServerId, usize>,
}

impl ServerIds {
    /// `backends` as in the configuration, in the order of the pool.
    pub fn new<'a>(
        quic_lb: &config::QuicLb,
        backends: impl Iterator<Item = &'a config::Backend>,
    ) -> Option<Self> {
        let key = quic_lb.key.as_ref().map(Secret::bytes).copied();
        let lengths = (quic_lb.server_id_length.into(), quic_lb.nonce_length.into());
        // A configuration that was read has lengths that fit.
        let routable = Routable::new(quic_lb.config, key, lengths.0, lengths.1).ok()?;
        let id = |(index, backend): (usize, &config::Backend)| {
            Some((ServerId::new(backend.server_id.as_deref()?)?, index))
        };
        Some(ServerIds { routable, backends: backends.enumerate().filter_map(id).collect() })
    }
}

impl Pool {
    /// The backend that has made a connection id, which may go on with other bytes.
    pub fn backend_named_by(&self, connection_id: &[u8]) -> Option<&Arc<BackendState>> {
        let ids = self.server_ids.as_ref()?;
        let server = ids.routable.decode(connection_id)?;
        let backend: &Backend = self.backends.get(*ids.backends.get(&server)?)?;
        Some(&backend.state)
    }
}
