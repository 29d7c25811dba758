//! pointsman: a layer-4 connection balancer.
//!
//! The way of a connection, and the modules in the order to read them:
//!
//! ```text
//! YAML → config → Snapshot (control publishes) → accept → route → pick → connect → relay → account
//! ```
//!
//! Imports point downwards only; `tests/tidy.rs` holds the layer table.

#![deny(unsafe_code)]
#![warn(missing_docs)]

// Layer 0: pure; no socket, no clock, no global randomness, no logging.
pub mod address;
pub mod balance;
pub mod flow;
pub mod health;
pub mod limits;
pub mod repeat;
pub mod route;
pub mod simulate;
pub mod wire;

// Layer 1: what the operator wrote, and what threads share.
pub mod config;
pub mod state;

// Layer 2: what the data plane reads, and the system calls it makes.
pub mod snapshot;
pub mod sys;

// Layer 3: tokio edges.
pub mod net;

// Layer 4: data plane, control plane, and what shows them.
pub mod control;
pub mod observe;
pub mod proxy;

// Layer 5: everything put together, and arguments to library calls to exit code.
pub mod cli;
pub mod service;
