//! The table of flows against the naive model; and what it, the sources and the connection ids
//! cost in memory and time.

use std::fs;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use pointsman::flow::{FlowId, Ids, Key, Limits, Prefixes, Sources, Table};
use pointsman::limits::{CONNECTION_IDS, SOURCES};
use proptest::collection::vec;
use proptest::prelude::*;

mod counting;
mod model;

use counting::{Counting, held};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const FLOWS: u32 = 100_000;
/// What one lock has of the sources.
const SHARD: usize = SOURCES / 16;
const SECOND: Duration = Duration::from_secs(1);

/// The fuzzer's corpus.
#[test]
fn corpus() {
    let files = fs::read_dir("tests/fuzz/corpus/flow_table").unwrap();
    let read = files.map(|file| model::check(&fs::read(file.unwrap().path()).unwrap())).count();
    assert!(read > 0);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn does_as_the_naive_model(bytes in vec(any::<u8>(), 0..1000)) {
        model::check(&bytes);
    }
}

fn key(client: u32) -> Key {
    let ip = Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(client / 4));
    Key::new(SocketAddr::from((ip, (client % 4) as u16)), IpAddr::V4(Ipv4Addr::LOCALHOST))
}

fn filled(flows: u32, now: Instant) -> (Table<[u8; 256]>, Vec<FlowId>) {
    let mut table = Table::new(now);
    let insert = |client| table.insert(key(client), [0; 256], now);
    let ids = (0..flows).map(insert).collect();
    (table, ids)
}

/// What is held before anything is measured, but with the seeds of the hash, which are made once in
/// a process.
fn held_at_first(now: Instant) -> isize {
    drop(Table::<()>::new(now));
    held()
}

/// What is held now, over what was `before`, for each of `count`.
fn bytes_each(before: isize, count: usize) -> f64 {
    (held() - before) as f64 / count as f64
}

/// Asserts that a flow with 256 bytes of its own takes 512 at most, at any number of them, and
/// that a table gives memory back, all of it when it is empty.
#[test]
fn memory_of_a_table() {
    let now = Instant::now();
    let before = held_at_first(now);
    let mut table = Table::new(now);
    let mut ids = Vec::with_capacity(FLOWS as usize);
    let without = held();
    for client in 0..FLOWS {
        ids.push(table.insert(key(client), [0u8; 256], now));
        if client >= 100 {
            assert!(bytes_each(without, table.len()) <= 512.0, "{client}");
        }
    }
    let full = bytes_each(without, table.len());
    // Few survive, in the worst places: each the only one of an allocation.
    for (_, id) in (0..).zip(&ids).filter(|(n, _)| n % 8 != 7) {
        assert!(table.remove(*id).is_some());
    }
    let left = bytes_each(without, table.len());
    // They are replaced by new ones, as it goes.
    for (client, id) in (0..).zip(&ids).filter(|(n, _)| n % 8 == 7) {
        table.insert(key(FLOWS + client), [0; 256], now);
        assert!(table.remove(*id).is_some());
    }
    assert_eq!(table.len(), FLOWS as usize / 8);
    let again = bytes_each(without, table.len());
    assert!(again <= 512.0);
    while let Some(id) = table.victim() {
        table.remove(id);
    }
    assert_eq!(held(), without, "all is given back");
    drop((table, ids));
    assert_eq!(held(), before);
    // Last: what the test prints is held as well.
    println!("{full:.0} bytes a flow of {FLOWS}, 256 of them the owner's");
    println!("{left:.0} bytes a flow of one in 8 left; {again:.0} once those are renewed");
}

#[test]
fn memory_of_sources() {
    let now = Instant::now();
    let before = held_at_first(now);
    let limits = Limits { flows: Some(10), rate: Some(100) };
    let mut sources = Sources::new(Prefixes { v4: 32, v6: 64 }, limits, SHARD, now);
    for n in 0..2 * SHARD as u32 {
        assert!(sources.admit_datagram(Ipv4Addr::from_bits(n).into(), now));
    }
    assert_eq!(sources.len(), SHARD);
    let each = bytes_each(before, SHARD);
    assert!(each <= 80.0);
    while sources.expire(now + SECOND) > 0 {}
    assert_eq!(held(), before, "all is given back");
    println!("{each:.0} bytes a source of {SHARD}");
}

#[test]
fn memory_of_ids() {
    let now = Instant::now();
    let before = held_at_first(now);
    let mut ids = Ids::new(CONNECTION_IDS, now);
    for n in 0..2 * CONNECTION_IDS as u64 {
        ids.learn(&n.to_be_bytes(), n, now);
    }
    assert_eq!(ids.len(), CONNECTION_IDS);
    let each = bytes_each(before, CONNECTION_IDS);
    assert!(each <= 96.0 + 8.0);
    while ids.expire(now + SECOND, SECOND) > 0 {}
    assert_eq!(held(), before, "all is given back");
    println!("{each:.0} bytes an id of {CONNECTION_IDS}, 8 of them the owner's");
}

/// Prints what a datagram costs. Asserts only what no busy machine can upset: flows are not
/// searched one by one, which would take milliseconds.
#[test]
fn cost_does_not_grow_with_flows() {
    let now = Instant::now();
    for flows in [1000, 10_000, FLOWS] {
        let (mut table, _) = filled(flows, now);
        // All over the table, so that caches do not flatter.
        let keys: Vec<Key> = (0..flows).map(|n| key((n * 7919) % flows)).collect();
        let round = |_| {
            let start = Instant::now();
            for key in &keys {
                let id = table.find(black_box(key)).unwrap();
                black_box(table.touch(id, now));
            }
            start.elapsed()
        };
        let cost = (0..5).map(round).min().unwrap() / flows;
        println!("{flows} flows: {cost:?} to find and touch one");
        assert!(cost < Duration::from_micros(50), "{flows}: {cost:?}");
    }
}

#[test]
fn stale_names_find_nothing() {
    let now = Instant::now();
    let (mut table, ids) = filled(100, now);
    for id in &ids {
        table.remove(*id);
    }
    let again: Vec<_> = (0..100).map(|n| table.insert(key(n), [0; 256], now)).collect();
    for id in ids {
        assert!(!again.contains(&id));
        assert!(table.get(id).is_none() && table.get_mut(id).is_none() && table.flow(id).is_none());
        assert!(table.touch(id, now).is_none() && table.answered(id, now).is_none());
        table.detach(id);
        assert!(table.remove(id).is_none());
    }
    assert_eq!(table.len(), 100);
    assert!((0..100).all(|n| table.find(&key(n)).is_some()));
}
