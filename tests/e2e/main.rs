//! The real program with real peers. One file a behaviour; `harness` starts and watches things.

#[allow(dead_code, unused_imports)] // each test binary uses its part of it
mod harness;

mod addresses;
mod admin_server;
mod all_or_nothing;
mod baseline;
mod bulk;
mod caps;
mod check_types;
mod checks_and_reloads;
mod command_line;
mod connecting;
mod ends;
mod first_steps;
mod floods;
mod health;
mod hello_refused;
mod hello_splits;
mod hello_told;
mod many_checks;
mod obstructed;
mod operator;
mod picks;
mod preread_flood;
mod quiet;
mod real_peers;
mod real_tls;
mod reload;
mod reload_rules;
mod resets;
mod route_actions;
mod routes;
mod sessions;
mod shortage;
mod shutdown;
mod soak;
mod stalling;
mod system_calls;
mod timeouts;
mod unix_files;
mod urgent;
mod vanished;
