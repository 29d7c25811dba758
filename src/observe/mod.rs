//! What shows the process to people and machines: its log, the access log, metrics, and the
//! admin server that serves them. Reads `state` and the snapshot; changes neither, and asks
//! control over [`crate::state::process::Command`] and workers over [`crate::state::Query`].

pub mod log;
mod log_queue;

mod access_format;
pub mod access_log;
mod access_sink;

mod families;
pub mod metrics;
mod prometheus;
mod readings;

pub mod admin;
mod api;
pub mod auth;
mod change;
mod resource;
pub mod sessions;
pub mod status;

#[cfg(test)]
mod fixture;
