//! The real program with real peers. One file a behaviour; `harness` starts and watches things.

mod harness;

mod admin_server;
mod command_line;
mod first_steps;
mod health;
mod real_peers;
mod reload;
mod reload_rules;
