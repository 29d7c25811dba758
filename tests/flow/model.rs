//! Operations on a table of flows from any bytes, and the naive table: a list that is searched.
//!
//! The universe is small, so that clients come back, times coincide and names go stale. The model
//! shares nothing with what it checks but the key.

use std::cmp::Reverse;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use pointsman::flow::{FlowId, Key, Table};

const CLIENTS: u16 = 6;
const LOCALS: u8 = 2;
const MOST: u8 = 40;
const OPERATIONS: usize = 400;
/// Names of the past that are tried.
const REMEMBERED: usize = 64;
const STEP: Duration = Duration::from_millis(500);

struct Model {
    /// In order of their last activity.
    flows: Vec<Modelled>,
    latest: Instant,
}

#[derive(Debug)]
struct Modelled {
    id: FlowId,
    key: Key,
    attached: bool,
    answered: bool,
    active: Instant,
    value: u32,
}

/// Asserts that a table with a bound does as the naive one, whatever `bytes` do to it, and ends
/// empty.
pub fn check(bytes: &[u8]) {
    let start = Instant::now();
    let mut source = Bytes(bytes.iter());
    let most = usize::from(source.below(MOST)) + 1;
    let mut now = start;
    let mut table = Table::new(start);
    let mut model = Model { flows: Vec::new(), latest: start };
    let mut names = Vec::new();
    for value in 0..OPERATIONS as u32 {
        let Some(&operation) = source.0.next() else { break };
        if operation & 1 == 0 {
            now += STEP * source.below(4).into();
        }
        // What an interrupt or a queue between the clock and here does.
        let read = if operation & 2 == 0 { now } else { now.checked_sub(STEP).unwrap_or(now) };
        match operation >> 2 & 7 {
            kind @ 0..=2 => {
                if table.len() >= most {
                    remove_victim(&mut table, &mut model);
                }
                let key = key(&mut source);
                let id = insert(&mut table, &mut model, kind < 2, key, value, read);
                names.push(id);
                let old = names.len().saturating_sub(REMEMBERED);
                names.drain(..old);
            }
            3 => change(&mut table, &mut model, pick(&names, &mut source), false, read),
            4 => change(&mut table, &mut model, pick(&names, &mut source), true, read),
            5 => {
                if let Some(id) = pick(&names, &mut source) {
                    table.detach(id);
                    if let Some(flow) = model.flow(id) {
                        flow.attached = false;
                    }
                }
            }
            6 => {
                if let Some(id) = pick(&names, &mut source) {
                    assert_eq!(table.remove(id), model.remove(id), "{id:?}");
                }
            }
            _ => expire(&mut table, &mut model, now, STEP * source.below(16).into()),
        }
        assert!(table.len() <= most);
        agree(&table, &model, &names, now);
    }
    now += STEP * 1000;
    expire(&mut table, &mut model, now, STEP);
    assert!(table.is_empty() && model.flows.is_empty());
    agree(&table, &model, &names, now);
}

fn insert(
    table: &mut Table<u32>,
    model: &mut Model,
    attached: bool,
    key: Key,
    value: u32,
    now: Instant,
) -> FlowId {
    let id = match attached {
        true => table.insert(key, value, now),
        false => table.insert_detached(key, value, now),
    };
    assert!(model.flow(id).is_none(), "{id:?} twice");
    if attached {
        for flow in model.flows.iter_mut().filter(|flow| flow.key == key) {
            flow.attached = false;
        }
    }
    let active = model.advance(now);
    model.flows.push(Modelled { id, key, attached, answered: false, active, value });
    id
}

fn change(
    table: &mut Table<u32>,
    model: &mut Model,
    id: Option<FlowId>,
    answered: bool,
    now: Instant,
) {
    let Some(id) = id else { return };
    let found = match answered {
        true => table.answered(id, now),
        false => table.touch(id, now),
    };
    let found = found.copied();
    let place = model.flows.iter().position(|flow| flow.id == id);
    let flow = place.map(|place| model.flows.remove(place));
    assert_eq!(found, flow.as_ref().map(|flow| flow.value), "{id:?}");
    if let Some(flow) = flow {
        let answered = flow.answered || answered;
        let active = model.advance(now);
        model.flows.push(Modelled { answered, active, ..flow });
    }
}

fn remove_victim(table: &mut Table<u32>, model: &mut Model) {
    let victim = table.victim().expect("it is full");
    assert_eq!(table.remove(victim), model.remove(victim));
}

fn expire(table: &mut Table<u32>, model: &mut Model, now: Instant, idle: Duration) {
    while let Some(id) = table.expired(now, Some(idle)) {
        assert_eq!(Some(id), model.expired(now, idle));
        assert_eq!(table.remove(id), model.remove(id));
    }
    assert_eq!(model.expired(now, idle), None);
}

fn agree(table: &Table<u32>, model: &Model, names: &[FlowId], now: Instant) {
    assert_eq!(table.len(), model.flows.len());
    assert_eq!(table.victim(), model.victim(None));
    if let Some(last) = model.flows.last().map(|flow| flow.id) {
        assert_eq!(table.victim_but(last), model.victim(Some(last)));
    }
    assert_eq!(table.expired(now, None), None);
    assert_eq!(table.next_expiry(None), None);
    for idle in [Duration::ZERO, STEP * 3, Duration::MAX] {
        assert_eq!(table.expired(now, Some(idle)), model.expired(now, idle), "{idle:?}");
        let next = model.flows.iter().map(|flow| flow.active).min();
        let next = next.and_then(|active| active.checked_add(idle));
        assert_eq!(table.next_expiry(Some(idle)), next, "{idle:?}");
    }
    for client in 0..CLIENTS {
        for key in (0..LOCALS).map(|local| key_of(client, local)) {
            let flow = model.flows.iter().find(|flow| flow.attached && flow.key == key);
            assert_eq!(table.find(&key), flow.map(|flow| flow.id), "{key:?}");
        }
    }
    for &id in names {
        let flow = model.flows.iter().find(|flow| flow.id == id);
        assert_eq!(table.get(id).copied(), flow.map(|flow| flow.value), "{id:?}");
        let alike = |answered| model.flows.iter().filter(|flow| flow.answered == answered).count();
        let rank = flow.map(|flow| (flow.answered, Reverse(alike(flow.answered))));
        assert_eq!(table.rank(id), rank, "{id:?}");
        assert_eq!(FlowId::from_u64(id.to_u64()), id);
        assert!(id.to_u64() >> 32 > 0);
        assert_eq!(table.get(FlowId::from_u64(id.to_u64() as u32 as u64)), None);
    }
    let mut listed: Vec<_> = table.iter().collect();
    listed.sort_by_key(|flow| model.flows.iter().position(|modelled| modelled.id == flow.id));
    assert_eq!(listed.len(), model.flows.len());
    for (listed, flow) in listed.iter().zip(&model.flows) {
        let told = (listed.id, listed.key, listed.attached, listed.answered, listed.active);
        let known = (flow.id, flow.key, flow.attached, flow.answered, flow.active);
        assert_eq!((told, *listed.value), (known, flow.value));
    }
}

impl Model {
    fn advance(&mut self, now: Instant) -> Instant {
        self.latest = self.latest.max(now);
        self.latest
    }

    fn flow(&mut self, id: FlowId) -> Option<&mut Modelled> {
        self.flows.iter_mut().find(|flow| flow.id == id)
    }

    fn remove(&mut self, id: FlowId) -> Option<u32> {
        let place = self.flows.iter().position(|flow| flow.id == id)?;
        Some(self.flows.remove(place).value)
    }

    fn victim(&self, kept: Option<FlowId>) -> Option<FlowId> {
        let mut others = self.flows.iter().filter(|flow| Some(flow.id) != kept);
        let first = others.clone().next();
        others.find(|flow| !flow.answered).or(first).map(|flow| flow.id)
    }

    /// Among those that have been idle for as long, one that is unanswered.
    fn expired(&self, now: Instant, idle: Duration) -> Option<FlowId> {
        let active = self.flows.first()?.active;
        let mut longest = self.flows.iter().take_while(|flow| flow.active == active);
        let flow = longest.find(|flow| !flow.answered).or(self.flows.first())?;
        (now.checked_duration_since(flow.active)? >= idle).then_some(flow.id)
    }
}

fn pick(names: &[FlowId], source: &mut Bytes<'_>) -> Option<FlowId> {
    let place = usize::from(*source.0.next()?).checked_rem(names.len())?;
    names.get(place).copied()
}

fn key(source: &mut Bytes<'_>) -> Key {
    key_of(source.below(CLIENTS as u8).into(), source.below(LOCALS))
}

fn key_of(client: u16, local: u8) -> Key {
    let client = SocketAddr::from(([192, 0, 2, (client / 2) as u8], 1000 + client % 2));
    Key::new(client, IpAddr::V4(Ipv4Addr::new(198, 51, 100, local)))
}

/// Zeros once it is read to the end.
struct Bytes<'a>(std::slice::Iter<'a, u8>);

impl Bytes<'_> {
    fn below(&mut self, end: u8) -> u8 {
        self.0.next().map_or(0, |byte| byte % end)
    }
}
