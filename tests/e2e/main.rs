//! The real program with real peers. One file a behaviour; `harness` starts and watches things.

mod harness;

mod addresses;
mod baseline;
mod bulk;
mod connecting;
mod ends;
mod first_steps;
mod picks;
mod quiet;
mod reload;
mod resets;
mod shortage;
mod shutdown;
mod soak;
mod timeouts;
mod vanished;
