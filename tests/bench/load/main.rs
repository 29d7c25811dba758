//! What `scripts/bench` measures with: a backend, and clients for each figure. Both cost little, and
//! a client that does not get its whole answer ends the run, so that no figure counts failures.
//!
//! ```text
//! load backend                               prints its port, then serves
//! load connections PORT SECONDS [NAMES]      a request each; with NAMES, a hello for one of so many
//! load requests PORT SECONDS [RATE CLIENTS]  on kept connections; with RATE, so many a second
//! load bulk PORT SECONDS STREAMS             receives as fast as it can
//! load datagrams PORT SECONDS FLOWS          one in flight each
//! load bursts PORT SECONDS                   of one flow
//! load idle PORT CONNECTIONS                 connects, and stays until its input ends
//! ```
//!
//! What it measured is printed as one JSON object.

use std::env;
use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

mod backend;
mod client;
mod datagrams;

use client::{CLIENTS, Requests};

/// The first byte of a request, which says what becomes of its connection. A hello, which starts with
/// none of these, is answered like [`ONCE`]: a backend without TLS costs least.
const ONCE: u8 = b'1';
const KEPT: u8 = b'k';
const BULK: u8 = b'b';

const REQUEST_BYTES: usize = 64;
const ANSWER_BYTES: usize = 160;

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["backend"] => backend::serve(),
        ["connections", port, seconds] => {
            let flights = vec![request(ONCE)];
            Requests::new(number(port), CLIENTS, flights, false).repeat(duration(seconds), None);
        }
        ["connections", port, seconds, names] => {
            let flights = client::hellos(number(names));
            Requests::new(number(port), CLIENTS, flights, false).repeat(duration(seconds), None);
        }
        ["requests", port, seconds] => {
            let flights = vec![request(KEPT)];
            Requests::new(number(port), CLIENTS, flights, true).repeat(duration(seconds), None);
        }
        ["requests", port, seconds, rate, clients] => {
            let requests = Requests::new(number(port), number(clients), vec![request(KEPT)], true);
            requests.repeat(duration(seconds), Some(number(rate)));
        }
        ["bulk", port, seconds, streams] => {
            client::receive(number(port), duration(seconds), number(streams));
        }
        ["datagrams", port, seconds, flows] => {
            datagrams::ask(number(port), duration(seconds), number(flows));
        }
        ["bursts", port, seconds] => {
            datagrams::ask_for_bursts(number(port), duration(seconds));
        }
        // `cargo bench` runs everything.
        ["--bench"] => println!("only scripts/bench has a use for this"),
        ["idle", port, connections] => client::stay(number(port), number(connections)),
        _ => panic!("see the head of tests/bench/load/main.rs"),
    }
}

fn request(kind: u8) -> Vec<u8> {
    let mut request = vec![b'.'; REQUEST_BYTES];
    request[0] = kind;
    request
}

fn duration(text: &str) -> Duration {
    Duration::from_secs_f64(number(text))
}

fn number<N: FromStr<Err: Display>>(text: &str) -> N {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}
