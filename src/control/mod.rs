//! The control plane: configuration, health checks, signals, shutdown.

mod change;
pub mod checks;
pub mod lifecycle;
pub mod publish;
pub mod signals;

pub use publish::Publisher;
