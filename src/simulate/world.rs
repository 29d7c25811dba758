//! Clients, backends and time. It knows what is true; the pool knows what checks and answers tell.

use std::time::Duration;

use race::Step;

use super::agenda::Agenda;
use super::draws::{self, Stream, stream};
use super::pool::{Pool, Tables};
use super::probes::Probes;
use super::report::{Failure, Report, Tally};
use super::requests::{Race, Request, RequestId, Requests, Stage};
use super::scenario::{Checks, Load, Scenario, Turn};
use super::server::{Condition, Server};
use super::{FAILURE_PAUSE, RunError, USER_TIMEOUT};
use crate::balance::Spec;
use crate::health::Schedule;
use crate::limits::{SIMULATE_IN_FLIGHT, SIMULATE_REQUESTS, SIMULATE_STEPS, SIMULATE_TIME};

mod race;
mod watch;

/// Backends that one step of a pick looks at.
const LOOKS_PER_STEP: usize = 8;

/// What a run may cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub requests: u64,
    pub steps: u64,
    /// Of virtual time.
    pub time: Duration,
}

impl Bounds {
    pub const LIMITS: Bounds =
        Bounds { requests: SIMULATE_REQUESTS, steps: SIMULATE_STEPS, time: SIMULATE_TIME };
}

/// What happens at a point in time.
#[derive(Debug)]
enum Event {
    /// The next request of an open load.
    Arrival,
    /// A client of a closed load has thought.
    Thought,
    /// Something about an attempt of a request, by its number.
    Attempt(RequestId, u64, Step),
    /// A place is given back that an attempt had which was overtaken.
    Expired(usize),
    /// A slot of a backend is done with a request, if the backend has not died meanwhile.
    Served { id: RequestId, index: usize, lives: u32 },
    /// The answer is with the client.
    Answered(RequestId),
    /// A request that died with its backend is given up.
    Lost(RequestId),
    /// A check of a backend is due.
    CheckDue(usize),
    /// It is over.
    Checked { index: usize, began: Duration, passed: bool },
    /// A backend is to be looked at.
    LookDue(usize),
    /// Something befalls a backend: the index of the incident.
    Incident(usize),
}

/// One run.
pub(super) struct World<'a> {
    scenario: &'a Scenario,
    spec: &'a Spec,
    bounds: Bounds,
    now: Duration,
    agenda: Agenda<Event>,
    pool: Pool<'a>,
    servers: Vec<Server>,
    requests: Requests,
    /// Attempts so far.
    attempts: u64,
    schedules: Vec<Schedule>,
    /// When each backend is to be looked at next, as far as that is on the agenda.
    looks: Vec<Option<Duration>>,
    check_rng: fastrand::Rng,
    arrival_rng: fastrand::Rng,
    probes: Option<Probes>,
    tally: Tally,
    steps: u64,
    /// Whether a request had to be left out for want of room in the run.
    cut: bool,
}

impl<'a> World<'a> {
    /// At time 0, with the first events to come.
    pub fn new(scenario: &'a Scenario, spec: &'a Spec, tables: &'a Tables, bounds: Bounds) -> Self {
        let mut pool = Pool::new(scenario, spec, tables);
        let count = scenario.backends.len();
        let schedule = |index| {
            let Checks { interval, fast_interval, .. } = scenario.checks?;
            Some(Schedule::new(interval, fast_interval, index, count, Duration::ZERO))
        };
        let mut world = World {
            scenario,
            spec,
            bounds,
            now: Duration::ZERO,
            agenda: Agenda::new(),
            probes: Probes::new(scenario, spec, &mut pool),
            pool,
            servers: scenario.backends.iter().map(|b| Server::new(*b, scenario.slots)).collect(),
            requests: Requests::default(),
            attempts: 0,
            looks: vec![None; count],
            schedules: (0..count).filter_map(schedule).collect(),
            check_rng: stream(scenario.seed, Stream::Checks),
            arrival_rng: stream(scenario.seed, Stream::Arrivals),
            tally: Tally::new(scenario, spec.policy),
            steps: 0,
            cut: false,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        for (index, incident) in self.scenario.incidents.iter().enumerate() {
            self.agenda.at(incident.at, Event::Incident(index));
        }
        for (index, schedule) in self.schedules.iter().enumerate() {
            self.agenda.at(schedule.due(), Event::CheckDue(index));
        }
        match self.scenario.load {
            Load::Open(_) => self.expect_arrival(),
            Load::Closed(clients, _) => {
                (0..clients).for_each(|_| self.agenda.at(self.now, Event::Thought));
            }
        }
    }

    /// Lives until the end.
    pub fn run(mut self) -> Result<Report, RunError> {
        let end = self.scenario.duration.unwrap_or(self.bounds.time);
        while let Some((time, event)) = self.agenda.next() {
            if time > end {
                break;
            }
            self.now = time;
            self.steps += 1;
            self.handle(event);
            if self.steps > self.bounds.steps {
                return Err(RunError::Steps);
            }
            if self.cut {
                return Err(RunError::Requests);
            }
            if self.done() {
                return Ok(self.finish());
            }
        }
        self.now = self.scenario.duration.ok_or(RunError::Time)?;
        Ok(self.finish())
    }

    /// Whether every request that there was to be is over.
    fn done(&self) -> bool {
        let all = self.scenario.requests == Some(self.tally.offered);
        all && self.requests.len() == 0
    }

    fn finish(self) -> Report {
        self.tally.finish(self.now, self.requests.len(), self.spec.policy.hashes())
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrival => {
                self.issue();
                self.expect_arrival();
            }
            Event::Thought => self.issue(),
            Event::Attempt(id, number, step) => self.step(id, number, step),
            Event::Expired(index) => self.give_back(index),
            Event::Served { id, index, lives } => self.served(id, index, lives),
            Event::Answered(id) => self.answered(id),
            Event::Lost(id) => {
                self.give_back(self.requests[id].backend);
                self.fail(id, Failure::Lost);
            }
            Event::CheckDue(index) => self.check(index),
            Event::Checked { index, began, passed } => self.checked(index, began, passed),
            Event::LookDue(index) => self.look(index),
            Event::Incident(index) => self.befall(index),
        }
    }

    fn after(&mut self, wait: Duration, event: Event) {
        self.agenda.at(self.now + wait, event);
    }

    fn expect_arrival(&mut self) {
        let Load::Open(rate) = self.scenario.load else { return };
        let gap = draws::gap(rate, &mut self.arrival_rng);
        self.after(gap, Event::Arrival);
    }

    /// A client sends the next request, if there is one left.
    fn issue(&mut self) {
        let number = self.tally.offered;
        if self.scenario.requests == Some(number) {
            return;
        }
        if number == self.bounds.requests {
            self.cut = true;
            return;
        }
        self.tally.offered += 1;
        // Clients of a closed load are never so many.
        if self.requests.len() >= SIMULATE_IN_FLIGHT {
            self.tally.failed(Failure::Overload);
            return;
        }
        let draw = draws::request(self.scenario, number);
        let hash = if self.spec.policy.hashes() { draw.client.hash(self.spec) } else { 0 };
        let ends = self.now + self.scenario.connect.total_timeout;
        let id = self.requests.insert(Request {
            draw,
            hash,
            issued: self.now,
            stage: Stage::Connecting,
            race: Race { ends, ..Race::default() },
            backend: 0,
            begun: self.now,
        });
        self.connect(id);
    }

    /// A request got a slot.
    fn serve(&mut self, id: RequestId) {
        let request = &self.requests[id];
        let index = request.backend;
        let server = &self.servers[index];
        let (takes, lives) = (server.takes(request.draw.service), server.lives());
        self.after(takes, Event::Served { id, index, lives });
    }

    fn served(&mut self, id: RequestId, index: usize, lives: u32) {
        let server = &mut self.servers[index];
        // What it had when it died is lost, and its place may long be another request's.
        if server.lives() != lives {
            return;
        }
        let next = server.release();
        if let Some(next) = next {
            self.serve(next);
        }
        self.requests[id].stage = Stage::Leaving;
        self.after(self.scenario.hop, Event::Answered(id));
    }

    fn answered(&mut self, id: RequestId) {
        let &Request { backend, begun, issued, draw, .. } = &self.requests[id];
        self.give_back(backend);
        self.pool.took(self.now, backend, self.now - begun);
        self.tally.completed(backend, self.now - issued);
        self.requests.remove(id);
        self.ponder(draw.think);
    }

    fn fail(&mut self, id: RequestId, failure: Failure) {
        self.tally.failed(failure);
        let think = self.requests[id].draw.think;
        self.requests.remove(id);
        self.ponder(think + FAILURE_PAUSE);
    }

    fn give_back(&mut self, index: usize) {
        let active = self.pool.give_back(index);
        self.tally.given_back(self.now, index, active);
    }

    /// A client of a closed load goes on after a while.
    fn ponder(&mut self, think: Duration) {
        if let Load::Open(_) = self.scenario.load {
            return;
        }
        if think.is_zero() {
            self.issue();
        } else {
            self.after(think, Event::Thought);
        }
    }

    fn befall(&mut self, incident: usize) {
        let incident = self.scenario.incidents[incident];
        let (condition, wait) = match incident.turn {
            Turn::Revived => {
                self.servers[incident.backend].revive();
                return;
            }
            // The reset has a hop to go.
            Turn::Killed => (Condition::Dead, self.scenario.hop),
            Turn::Vanished => (Condition::Gone, USER_TIMEOUT),
        };
        self.steps += self.requests.places() as u64;
        for id in self.requests.inside(incident.backend) {
            self.requests[id].stage = Stage::Leaving;
            self.after(wait, Event::Lost(id));
        }
        self.servers[incident.backend].die(condition);
    }
}
