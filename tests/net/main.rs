//! The real program in networks that lose packets, routes and hosts. They are network namespaces,
//! which only root can make: without root these tests fail, and `scripts/test` says that it leaves
//! them out.

#[allow(dead_code, unused_imports)]
#[path = "../e2e/harness/mod.rs"]
mod harness;
mod namespace;

mod needs_root {
    mod black_hole;
    mod connecting;
    mod small_mtu;
    mod udp_flood;
    mod udp_trains;
    mod udp_unreachable;
    mod vanishing;
}
