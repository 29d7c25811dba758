//! What the table of flows costs a datagram: `cargo bench --bench flow`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Instant;

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use pointsman::flow::{Key, Table};

const FLOWS: u32 = 100_000;
const DATAGRAMS: usize = 1000;

/// What the owner puts into each flow, about.
type Value = [u8; 256];

fn main() {
    divan::main();
}

fn key(client: u32) -> Key {
    let client = SocketAddr::from((Ipv4Addr::from_bits(client / 4), (client % 4) as u16));
    Key::new(client, IpAddr::V4(Ipv4Addr::LOCALHOST))
}

fn filled(now: Instant) -> Table<Value> {
    let mut table = Table::new(now);
    for client in 0..FLOWS {
        table.insert(key(client), [0; 256], now);
    }
    table
}

/// Datagrams of so many busy flows, all over a full table.
#[divan::bench(args = [1, 100, 1000, FLOWS])]
fn find_and_touch(bencher: Bencher<'_, '_>, busy: u32) {
    let now = Instant::now();
    let mut table = filled(now);
    let any = || (0..DATAGRAMS).map(|_| key(fastrand::u32(..busy) * (FLOWS / busy))).collect();
    bencher.counter(ItemsCount::new(DATAGRAMS)).with_inputs(any).bench_local_refs(
        |keys: &mut Vec<Key>| {
            for key in keys {
                let id = table.find(black_box(key)).expect("all are in there");
                black_box(table.touch(id, now));
            }
        },
    );
}

/// The idlest flow makes room for a new one.
#[divan::bench]
fn replace(bencher: Bencher<'_, '_>) {
    let now = Instant::now();
    let mut table = filled(now);
    let mut client = FLOWS;
    bencher.counter(ItemsCount::new(DATAGRAMS)).bench_local(|| {
        for _ in 0..DATAGRAMS {
            client += 1;
            let victim = table.victim().expect("it is not empty");
            black_box(table.remove(victim));
            table.insert(key(client), [0; 256], now);
        }
    });
}
