//! Puts the parts together: binds, starts workers, control and the admin server.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::watch;

use crate::address::Address;
use crate::config::Config;
use crate::snapshot::Snapshot;
use crate::state::Process;

/// A running balancer.
#[derive(Debug)]
pub struct Service {
    process: Arc<Process>,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    admin: Option<Address>,
}

/// Why a balancer did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address could not be listened on.
    #[error("{0}")]
    Bind(String),
}

impl Service {
    /// Starts everything; returns when it accepts connections. A reload reads `path`.
    pub fn start(config: Config, path: Option<PathBuf>) -> Result<Service, StartError> {
        let _ = (config, path);
        unimplemented!()
    }

    /// What its threads share.
    pub fn process(&self) -> &Arc<Process> {
        &self.process
    }

    /// The configuration in force.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshots.borrow().clone()
    }

    /// Where the admin server listens, if there is one: the kernel chose the port where 0 was
    /// asked for.
    pub fn admin(&self) -> Option<&Address> {
        self.admin.as_ref()
    }

    /// Begins a graceful stop, as SIGTERM does.
    pub fn stop(&self) {}

    /// Waits until it has stopped, by a signal or by [`Service::stop`].
    pub fn wait(self) {}
}
