//! The control plane: configuration, health checks, signals, shutdown.

mod change;
pub mod checks;
pub mod lifecycle;
pub mod probe;
pub mod publish;
pub mod signals;
mod watch;

pub use publish::Publisher;
