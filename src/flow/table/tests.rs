//! One behaviour each; `tests/flow/` has all of them together, against a naive model.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn key(port: u16) -> Key {
    Key::new(([192, 0, 2, 1], port).into(), [198, 51, 100, 1].into())
}

/// A table with a flow a second.
fn table(flows: u16) -> (Table<u16>, Vec<FlowId>, Instant) {
    let mut now = Instant::now();
    let mut table = Table::new(now);
    let insert = |n| {
        now += SECOND;
        table.insert(key(n), n, now)
    };
    let ids = (0..flows).map(insert).collect();
    (table, ids, now)
}

#[test]
fn the_unanswered_go_first() {
    let (mut table, ids, now) = table(4);
    let later = now + SECOND;
    assert_eq!(table.touch(ids[0], later), Some(&mut 0));
    assert_eq!(table.answered(ids[1], later), Some(&mut 1));
    assert_eq!(table.answered(ids[3], later), Some(&mut 3));
    table.touch(ids[1], later);
    let victims = std::iter::from_fn(|| table.remove(table.victim()?));
    assert_eq!(victims.collect::<Vec<_>>(), [2, 0, 3, 1]);
}

/// Whoever is in need of the room does not make it, whether others have been answered or not.
#[test]
fn one_can_be_kept() {
    let (mut table, ids, now) = table(2);
    assert_eq!(table.victim_but(ids[1]), Some(ids[0]));
    table.answered(ids[0], now);
    assert_eq!(table.victim_but(ids[1]), Some(ids[0]));
    table.remove(ids[0]);
    assert_eq!(table.victim_but(ids[1]), None);
}

/// A flood is where most are alike; and however many have been answered, the unanswered go first.
#[test]
fn the_victim_of_the_fullest_table_goes_first() {
    // Each with so many flows, and the first so many of them answered.
    let tables = [(3, 3), (2, 1), (9, 9), (4, 1), (3, 1)].map(|(flows, answered)| {
        let (mut table, ids, now) = table(flows);
        ids[..answered].iter().for_each(|&id| assert!(table.answered(id, now).is_some()));
        table
    });
    let mut order: Vec<_> = (0..tables.len()).collect();
    order.sort_by_key(|&index| tables[index].rank(tables[index].victim().unwrap()).unwrap());
    assert_eq!(order, [3, 4, 1, 2, 0]);
    let (mut table, ids, _) = table(1);
    table.remove(ids[0]);
    assert_eq!(table.rank(ids[0]), None);
}

#[test]
fn the_idlest_expires_first() {
    let (mut table, ids, now) = table(3);
    let idle = Some(SECOND * 10);
    assert_eq!(table.next_expiry(idle), Some(now + SECOND * 8));
    // As late as the latest: time does not go backwards.
    table.answered(ids[0], now - SECOND * 2);
    let due = now + SECOND * 9;
    assert_eq!(table.next_expiry(idle), Some(due));
    assert_eq!((table.next_expiry(None), table.expired(due, None)), (None, None));
    assert_eq!(table.expired(due - Duration::from_nanos(1), idle), None);
    let expired = |now| std::iter::from_fn(move || table.remove(table.expired(now, idle)?));
    assert_eq!(expired(due + SECOND).collect::<Vec<_>>(), [1, 2, 0]);
}

#[test]
fn a_detached_flow_lives_on() {
    let (mut table, ids, now) = table(1);
    table.detach(ids[0]);
    table.detach(ids[0]);
    assert_eq!((table.find(&key(0)), table.get(ids[0])), (None, Some(&0)));
    let second = table.insert(key(0), 10, now);
    let third = table.insert_detached(key(0), 20, now);
    assert_eq!((table.find(&key(0)), table.len()), (Some(second), 3));
    // Its end is not that of the flow that took its place.
    assert_eq!((table.remove(ids[0]), table.remove(third)), (Some(0), Some(20)));
    assert_eq!(table.find(&key(0)), Some(second));
    // A key that is taken: the flow that had it is detached.
    let fourth = table.insert(key(0), 30, now);
    assert_eq!(table.find(&key(0)), Some(fourth));
    assert_eq!(table.answered(second, now), Some(&mut 10));
    let listed = table.iter().map(|flow| (flow.id, flow.attached, flow.answered));
    assert_eq!(listed.collect::<Vec<_>>(), [(fourth, true, false), (second, false, true)]);
}

#[test]
fn names_as_words() {
    let (mut table, ids, now) = table(2);
    table.generation = u32::MAX;
    let wrapped = table.insert(key(9), 9, now);
    assert_eq!(wrapped.generation, 1, "0 is skipped");
    for id in [ids[0], ids[1], wrapped] {
        assert_eq!(FlowId::from_u64(id.to_u64()), id);
        assert!(id.to_u64() > u64::from(u32::MAX));
    }
    for word in [0, 1, u64::MAX, u64::from(u32::MAX), 1 << 33, 1 << 32 | 0xffff_ffff] {
        assert!(table.get(FlowId::from_u64(word)).is_none(), "{word}");
    }
}
