//! The attempts of a request to connect, by the rules of the data plane: to different backends,
//! one when another has failed, or beside one that takes long, within the budget of the pool and
//! the time for all of them.

use super::*;
use crate::health::outlier::{Claim, Failure as Outcome};
use crate::simulate::pool::Picked;
use crate::simulate::requests::Attempt;

/// What happens to an attempt that is under way, or because of it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// It is at the backend's door.
    Reached,
    /// The balancer knows that it is established.
    Connected,
    /// The balancer knows that it has failed.
    Failed,
    /// It has taken so long that another one is to start beside it.
    Hedge,
    /// The wait after it is over, when all backends have been tried.
    Waited,
    /// The time for all attempts is over.
    GivenUp,
}

impl World<'_> {
    /// Makes the first attempt.
    pub(super) fn connect(&mut self, id: RequestId) {
        self.pool.earn(self.now);
        match self.pick(id) {
            Some(picked) => self.start(id, picked),
            None => self.fail(id, Failure::NoBackend),
        }
    }

    pub(super) fn step(&mut self, id: RequestId, number: u64, step: Step) {
        match step {
            Step::Reached => self.reached(id, number),
            Step::Connected => self.connected(id, number),
            Step::Failed => self.failed(id, number),
            Step::Hedge => {
                let race = &self.requests[id].race;
                if race.latest == number && race.hedge_at == Some(self.now) {
                    self.hedge(id);
                }
            }
            Step::Waited => self.waited(id),
            Step::GivenUp => self.given_up(id, number),
        }
    }

    /// A backend that was not tried yet.
    fn pick(&mut self, id: RequestId) -> Option<Picked> {
        self.steps += (self.servers.len() / LOOKS_PER_STEP) as u64;
        let Request { race, hash, .. } = &self.requests[id];
        self.pool.pick(self.now, &race.tried, *hash)
    }

    fn start(&mut self, id: RequestId, picked: Picked) {
        let (now, index, connect) = (self.now, picked.index, self.scenario.connect);
        self.attempts += 1;
        let number = self.attempts;
        let (claim, active) = self.pool.take(picked);
        self.tally.picked(now, index, active);
        let race = &mut self.requests[id].race;
        race.made += 1;
        race.latest = number;
        race.tried.add(index);
        race.pending.push(Attempt { number, index, begun: now, claim });
        race.hedge_at = self.pool.hedge_after().map(|after| now + after);
        let (hedge_at, ends) = (race.hedge_at, race.ends);
        self.after(self.scenario.hop, Event::Attempt(id, number, Step::Reached));
        if let Some(at) = hedge_at {
            self.agenda.at(at, Event::Attempt(id, number, Step::Hedge));
        }
        if now + connect.timeout > ends {
            self.agenda.at(ends, Event::Attempt(id, number, Step::GivenUp));
        }
    }

    /// The first attempt at the door of a backend that lives brings the request there.
    fn reached(&mut self, id: RequestId, number: u64) {
        let request = &mut self.requests[id];
        let Some(attempt) = request.race.pending.iter().find(|a| a.number == number) else {
            return;
        };
        let (index, begun) = (attempt.index, attempt.begun);
        let answered = self.now + self.scenario.hop;
        match self.servers[index].condition() {
            Condition::Alive => {
                self.agenda.at(answered, Event::Attempt(id, number, Step::Connected));
                if request.stage == Stage::Connecting {
                    (request.stage, request.backend) = (Stage::Inside, index);
                    request.begun = begun;
                    if self.servers[index].admit(id) {
                        self.serve(id);
                    }
                }
            }
            Condition::Dead => {
                self.agenda.at(answered, Event::Attempt(id, number, Step::Failed));
            }
            Condition::Gone => {
                let ends = begun + self.scenario.connect.timeout;
                self.agenda.at(ends, Event::Attempt(id, number, Step::Failed));
            }
        }
    }

    fn connected(&mut self, id: RequestId, number: u64) {
        let request = &mut self.requests[id];
        let Some(won) = request.race.remove(number) else { return };
        let losers = std::mem::take(&mut request.race.pending);
        request.race.hedge_at = None;
        self.tally.connected(self.now - request.issued);
        self.pool.connected(self.now - won.begun);
        self.report(won.index, won.claim, Ok(()));
        for loser in losers {
            self.overtaken(loser);
        }
    }

    /// One that lost although it had its time counts as a failure, and as load until it would have
    /// timed out.
    fn overtaken(&mut self, attempt: Attempt) {
        let Attempt { index, begun, claim, .. } = attempt;
        if self.pool.hedge_after().is_some_and(|after| self.now - begun >= after) {
            self.report(index, claim, Err(Outcome::Late));
            self.agenda.at(begun + self.scenario.connect.timeout, Event::Expired(index));
        } else {
            self.pool.cancel(index, claim);
            self.give_back(index);
        }
    }

    fn failed(&mut self, id: RequestId, number: u64) {
        let Some(attempt) = self.requests[id].race.remove(number) else { return };
        self.lose(attempt, Outcome::Connect);
        if self.requests[id].race.pending.is_empty() {
            self.retry(id);
        } else {
            // What is pending is as slow as before.
            self.hedge(id);
        }
    }

    /// All that are under way, unless one of them is about to be established.
    fn given_up(&mut self, id: RequestId, number: u64) {
        let request = &mut self.requests[id];
        if !request.race.is_pending(number) || request.stage != Stage::Connecting {
            return;
        }
        for attempt in std::mem::take(&mut request.race.pending) {
            self.lose(attempt, Outcome::Late);
        }
        self.fail(id, Failure::Connect);
    }

    fn lose(&mut self, attempt: Attempt, outcome: Outcome) {
        self.give_back(attempt.index);
        self.tally.refused(attempt.index);
        self.report(attempt.index, attempt.claim, Err(outcome));
    }

    fn report(&mut self, index: usize, claim: Option<Claim>, outcome: Result<(), Outcome>) {
        if self.pool.report(index, claim, outcome) {
            self.look(index);
        }
    }

    /// Starts another attempt beside those under way, where there is a backend for it.
    fn hedge(&mut self, id: RequestId) {
        let race = &mut self.requests[id].race;
        race.hedge_at = None;
        if race.made >= self.scenario.connect.attempts {
            return;
        }
        let Some(picked) = self.pick(id) else { return };
        if self.spend() {
            self.tally.hedges += 1;
            self.start(id, picked);
        }
    }

    /// Starts another attempt, now that none is under way; waits if every backend has been tried.
    fn retry(&mut self, id: RequestId) {
        let race = &self.requests[id].race;
        if race.made >= self.scenario.connect.attempts || self.now >= race.ends {
            self.fail(id, Failure::Connect);
            return;
        }
        let picked = self.pick(id);
        if self.spend() {
            self.go_on(id, picked);
        } else {
            self.fail(id, Failure::Connect);
        }
    }

    fn go_on(&mut self, id: RequestId, picked: Option<Picked>) {
        if let Some(picked) = picked {
            self.tally.retries += 1;
            self.start(id, picked);
            return;
        }
        let Race { tried, rounds, latest, ends, .. } = &self.requests[id].race;
        if tried.count() == 0 {
            self.fail(id, Failure::Connect);
            return;
        }
        let at = (self.now + self.pool.backoff(*rounds)).min(*ends);
        self.agenda.at(at, Event::Attempt(id, *latest, Step::Waited));
    }

    fn waited(&mut self, id: RequestId) {
        let race = &mut self.requests[id].race;
        if self.now >= race.ends {
            self.fail(id, Failure::Connect);
            return;
        }
        race.tried.clear();
        race.rounds += 1;
        let picked = self.pick(id);
        self.go_on(id, picked);
    }

    fn spend(&mut self) -> bool {
        let allowed = self.pool.spend(self.now);
        self.tally.exhausted += u64::from(!allowed);
        allowed
    }
}
