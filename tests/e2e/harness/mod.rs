//! What the tests stand on: the program as a process, its peers, and waiting with a deadline.
//! Nothing here uses a fixed port or outlives the test that started it.

mod admin;
mod backend;
mod bursts;
mod certificate;
mod chromium;
mod command;
mod edge;
mod flood;
mod haproxy;
mod held_port;
mod hideable;
mod load;
mod metrics;
mod nginx;
mod pattern;
mod pointsman;
mod process;
mod quic_peer;
mod rebinder;
mod record;
mod s_server;
mod session;
mod stalls;
mod stream;
mod udp;

#[path = "../../hello/builder.rs"]
pub mod hello;
#[path = "../../quic/builder.rs"]
pub mod initial;

use std::time::{Duration, Instant};

pub use backend::Backend;
pub use bursts::{LARGEST, check_mirrored, datagram, datagrams};
pub use certificate::{certify, certify_by_authority};
pub use chromium::{browse, browse_quic};
pub use command::{Answer, Background, command, finish, finish_reading};
pub use edge::{Edge, answer, answering, captured, routed};
pub use flood::Flood;
pub use haproxy::Haproxy;
pub use held_port::HeldPort;
pub use hideable::Hideable;
pub use load::{Instance, Load};
pub use metrics::Metrics;
pub use nginx::Nginx;
pub use pointsman::{Pointsman, fresh_directory};
pub use process::{Usage, raise_descriptors};
pub use quic_peer::{Dial, QuicClient, QuicServer};
pub use rebinder::{Rebinder, UdpPeer};
pub use record::Record;
pub use s_server::SServer;
pub use session::{Session, Side, expect_record};
pub use stalls::Stalls;
pub use stream::Stream;
pub use udp::{UdpBackend, UdpClient, one_udp_listener};

/// How long anything may take that should happen at once: long enough for a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Looks again and again until there is a value, and panics when that takes too long.
#[track_caller]
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = look() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} in vain for {what}");
        pass(Duration::from_millis(2));
    }
}

/// [`wait_for`] a condition.
#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    wait_for(what, || condition().then_some(()));
}

/// Lets time pass: between two looks at a condition, or where time itself is the matter of the
/// test. Never to hope that something has happened meanwhile.
#[allow(clippy::disallowed_methods)]
pub fn pass(time: Duration) {
    std::thread::sleep(time);
}

/// A configuration with the listener `edge` on a port of the kernel's choice, and its pool
/// `pool` without checks. `listener` and `pool` are further keys in flow style, such as
/// `timeouts: { idle: 1s }`.
pub fn one_listener(listener: &str, backends: &[&str], pool: &str) -> String {
    let listener = if listener.is_empty() { String::new() } else { format!(", {listener}") };
    let pool = if pool.is_empty() { String::new() } else { format!(", {pool}") };
    let backends: Vec<_> = backends.iter().map(|address| format!("\"{address}\"")).collect();
    format!(
        "listeners: {{ edge: {{ bind: \"127.0.0.1:0\", pool: pool{listener} }} }}\n\
         pools: {{ pool: {{ backends: [{}], health: off{pool} }} }}\n",
        backends.join(", ")
    )
}
