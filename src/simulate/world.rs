//! Clients, backends and time. It knows what is true; the pool knows what checks and answers tell.

use std::time::Duration;

use super::agenda::Agenda;
use super::draws::{self, Stream, stream};
use super::pool::Pool;
use super::probes::Probes;
use super::report::{Change, Failure, Report, Tally};
use super::requests::{Request, RequestId, Requests, Stage, Tried};
use super::scenario::{Checks, Load, Scenario, Turn};
use super::server::{Condition, Server};
use super::{FAILURE_PAUSE, RunError, USER_TIMEOUT};
use crate::balance::{Policy, Spec};
use crate::health::Schedule;
use crate::limits::{SIMULATE_IN_FLIGHT, SIMULATE_REQUESTS, SIMULATE_STEPS, SIMULATE_TIME};

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
    /// A request is at the backend's door.
    Reached(RequestId),
    /// A slot of a backend is done with a request, if the backend has not died meanwhile.
    Served { id: RequestId, index: usize, lives: u32 },
    /// The answer is with the client.
    Answered(RequestId),
    /// An attempt to connect has failed.
    Refused(RequestId),
    /// A request that died with its backend is given up.
    Lost(RequestId),
    /// A check of a backend is due.
    CheckDue(usize),
    /// It is over.
    Checked { index: usize, began: Duration, passed: bool },
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
    schedules: Vec<Schedule>,
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
    pub fn new(scenario: &'a Scenario, spec: &'a Spec, policy: &'a Policy, bounds: Bounds) -> Self {
        let mut pool = Pool::new(scenario, spec, policy);
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
            Event::Reached(id) => self.reached(id),
            Event::Served { id, index, lives } => self.served(id, index, lives),
            Event::Answered(id) => self.answered(id),
            Event::Refused(id) => self.refused(id),
            Event::Lost(id) => {
                self.give_back(id);
                self.fail(id, Failure::Lost);
            }
            Event::CheckDue(index) => self.check(index),
            Event::Checked { index, began, passed } => self.checked(index, began, passed),
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
        let id = self.requests.insert(Request {
            draw,
            hash,
            issued: self.now,
            begun: self.now,
            backend: 0,
            stage: Stage::Travelling,
            tried: Tried::default(),
        });
        self.attempt(id);
    }

    /// As the data plane does it: picks among what has not been tried, while attempts are left.
    fn attempt(&mut self, id: RequestId) {
        let request = &mut self.requests[id];
        let tried = request.tried.count();
        let mut picked = None;
        if tried < self.scenario.attempts {
            picked = self.pool.pick(self.now, &request.tried, request.hash);
            self.steps += (self.servers.len() / LOOKS_PER_STEP) as u64;
        }
        let Some(index) = picked else {
            let failure = if tried == 0 { Failure::NoBackend } else { Failure::Connect };
            self.fail(id, failure);
            return;
        };
        (request.backend, request.begun) = (index, self.now);
        self.tally.retries += u64::from(tried > 0);
        let active = self.pool.take(index);
        self.tally.picked(self.now, index, active);
        self.after(self.scenario.hop, Event::Reached(id));
    }

    fn reached(&mut self, id: RequestId) {
        let (index, begun) = (self.requests[id].backend, self.requests[id].begun);
        match self.servers[index].condition() {
            Condition::Alive => {
                self.requests[id].stage = Stage::Inside;
                if self.servers[index].admit(id) {
                    self.start(id);
                }
            }
            Condition::Dead => self.after(self.scenario.hop, Event::Refused(id)),
            Condition::Gone => {
                self.agenda.at(begun + self.scenario.connect_timeout, Event::Refused(id));
            }
        }
    }

    /// A request got a slot.
    fn start(&mut self, id: RequestId) {
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
            self.start(next);
        }
        self.requests[id].stage = Stage::Travelling;
        self.after(self.scenario.hop, Event::Answered(id));
    }

    fn answered(&mut self, id: RequestId) {
        self.give_back(id);
        let request = &self.requests[id];
        let (index, think) = (request.backend, request.draw.think);
        self.pool.took(self.now, index, self.now - request.begun);
        self.tally.completed(index, self.now - request.issued);
        self.requests.remove(id);
        self.ponder(think);
    }

    fn refused(&mut self, id: RequestId) {
        self.give_back(id);
        let request = &mut self.requests[id];
        request.tried.add(request.backend);
        self.tally.refused(request.backend);
        self.attempt(id);
    }

    fn fail(&mut self, id: RequestId, failure: Failure) {
        self.tally.failed(failure);
        let think = self.requests[id].draw.think;
        self.requests.remove(id);
        self.ponder(think + FAILURE_PAUSE);
    }

    fn give_back(&mut self, id: RequestId) {
        let index = self.requests[id].backend;
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

    /// A kernel answers in two hops, with yes or no; nobody does not.
    fn check(&mut self, index: usize) {
        let Some(checks) = self.scenario.checks else { return };
        let condition = self.servers[index].condition();
        let silent = condition == Condition::Gone;
        let takes = if silent { checks.timeout } else { self.scenario.hop * 2 };
        let (began, passed) = (self.now, condition == Condition::Alive);
        self.after(takes, Event::Checked { index, began, passed });
    }

    fn checked(&mut self, index: usize, began: Duration, passed: bool) {
        if let Some(state) = self.pool.checked(index, passed) {
            let (pool, count) = (&mut self.pool, self.servers.len());
            let moved = self.probes.as_mut().map(|probes| {
                self.steps += (probes.len() * (1 + count / LOOKS_PER_STEP)) as u64;
                probes.look(pool, index)
            });
            let panic = self.pool.in_panic();
            self.tally.changed(Change { at: self.now, backend: index, state, panic, moved });
        }
        let in_doubt = self.pool.in_doubt(index);
        self.schedules[index].advance(began, in_doubt, &mut self.check_rng);
        // A check that took longer than the interval is followed by the next at once.
        let due = self.schedules[index].due().max(self.now);
        self.agenda.at(due, Event::CheckDue(index));
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
            self.requests[id].stage = Stage::Travelling;
            self.after(wait, Event::Lost(id));
        }
        self.servers[incident.backend].die(condition);
    }
}
