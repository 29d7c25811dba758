//! The data plane's side: connections with their attempts, retries and hedges, and what they
//! report.

use pointsman::balance::View;
use pointsman::health::hedge::{HEDGE_MAX, HEDGE_MIN};
use pointsman::health::outlier::{Claim, Failure};

use super::*;

const ATTEMPTS: u32 = 3;

/// A connection until its backend has answered.
pub struct Connection {
    hash: u64,
    /// Keys of backends that have failed it.
    tried: Vec<u32>,
    attempts: u32,
    /// Times that all backends had been tried.
    rounds: u32,
    pending: Vec<Attempt>,
    /// The one that was established.
    won: Option<Attempt>,
}

struct Attempt {
    id: Id,
    number: u32,
    began: Duration,
    ends: Duration,
    /// The claim, and its round as the referee counts.
    trial: Option<(Claim, u32)>,
    fate: Fate,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Fails,
    Answers,
    Closes,
}

/// What a pick sees: weight, whether it is usable, leases.
struct Candidates(Vec<(u16, bool, u32)>);

impl View for Candidates {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn usable(&self, index: usize) -> bool {
        self.0[index].1
    }

    fn active(&self, index: usize) -> u32 {
        self.0[index].2
    }

    fn weight(&self, index: usize) -> u16 {
        self.0[index].0
    }
}

impl World {
    pub fn arrive(&mut self) {
        self.tally.connections += 1;
        self.budget.earn(self.now, RETRY_PERCENT);
        let number = self.tally.connections;
        let (hash, tried, pending) = (self.rng.u64(..), Vec::new(), Vec::new());
        let connection = Connection { hash, tried, attempts: 0, rounds: 0, pending, won: None };
        self.connections.insert(number, connection);
        if !self.calm && self.rng.u32(..4) == 0 {
            self.after_ms(0..20, Event::Leaves(number));
        }
        self.attempt(number);
        self.after_ms(1..100, Event::Arrival);
    }

    fn candidates(&self, tried: &[u32]) -> Candidates {
        let candidate = |(key, backend): (&u32, &Backend)| {
            let state = backend.standing.state();
            let trial = state == State::Ejected && backend.passive.trials.available();
            let usable = self.panic || state == State::Up || trial;
            let usable = usable && backend.weight > 0 && !tried.contains(key);
            (backend.weight, usable, self.active.get(key).copied().unwrap_or(0))
        };
        Candidates(self.backends.iter().map(candidate).collect())
    }

    /// Starts an attempt at a backend that was not tried yet; false if there is none.
    fn attempt(&mut self, number: u32) -> bool {
        let connection = &self.connections[&number];
        let (hash, view) = (connection.hash, self.candidates(&connection.tried));
        let picked = self.policy.pick(&view, hash, &self.tickets, &mut self.rng);
        let Some(index) = picked else {
            assert!(!view.0.iter().any(|c| c.1), "nothing picked, though something is usable");
            self.give_up_if_idle(number);
            return false;
        };
        let (&key, backend) = self.backends.iter_mut().nth(index).expect("an index of the view");
        let (state, id) = (backend.standing.state(), (key, backend.life));
        assert!(backend.weight > 0, "weight 0 was picked");
        // In panic as well: who is not tried never comes back.
        let claim = if state == State::Ejected { backend.passive.trials.claim() } else { None };
        let trial = claim.map(|claim| (claim, backend.referee.tries(&self.terms)));
        assert!(trial.is_some() || self.panic || state == State::Up, "picked while {state}");
        let (took, fate) = self.fate(key);
        *self.active.entry(key).or_default() += 1;
        let connection = self.connections.get_mut(&number).expect("it makes an attempt");
        connection.attempts += 1;
        connection.tried.push(key);
        let (attempt, began, ends) = (connection.attempts, self.now, self.now + took);
        connection.pending.push(Attempt { id, number: attempt, began, ends, trial, fate });
        self.at(ends, Event::AttemptEnds(number, attempt));
        let hedge_after = self.times.hedge_after();
        assert!((HEDGE_MIN..=HEDGE_MAX).contains(&hedge_after));
        if self.hedges && hedge_after < TIMEOUT {
            self.after(hedge_after, Event::Hedge(number, attempt));
        }
        true
    }

    /// What will become of an attempt, and when.
    fn fate(&mut self, key: u32) -> (Duration, Fate) {
        // Below the least delay of a hedge: a healthy backend is never overtaken.
        let quick = Duration::from_micros(self.rng.u64(50..4500));
        match self.backends[&key].fault {
            Fault::None => (quick, Fate::Answers),
            Fault::Refuses => (quick, Fate::Fails),
            Fault::Drops => (TIMEOUT, Fate::Fails),
            Fault::Slow => (MS * self.rng.u32(30..200), Fate::Answers),
            Fault::Flaky if self.rng.bool() => (quick, Fate::Fails),
            Fault::Flaky => (quick, Fate::Answers),
            Fault::Closes => (quick, Fate::Closes),
        }
    }

    pub fn hedge(&mut self, number: u32, attempt: u32) {
        let Some(connection) = self.connections.get(&number) else { return };
        let pending = connection.pending.iter().any(|pending| pending.number == attempt);
        let view = self.candidates(&connection.tried);
        if pending && connection.attempts < ATTEMPTS && view.0.iter().any(|c| c.1) && self.spend() {
            self.tally.hedges += 1;
            self.attempt(number);
        }
    }

    fn spend(&mut self) -> bool {
        assert!(!self.calm, "nothing is retried when all is well");
        let granted = self.budget.spend(self.now);
        self.tally.exhausted += u32::from(!granted);
        granted
    }

    pub fn end_attempt(&mut self, number: u32, attempt: u32) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let Some(index) = connection.pending.iter().position(|p| p.number == attempt) else {
            return;
        };
        let ended = connection.pending.remove(index);
        if ended.fate == Fate::Fails {
            self.end_lease(ended.id.0);
            self.report(ended, Err(Failure::Connect));
            self.retry(number);
            return;
        }
        let losers = std::mem::take(&mut connection.pending);
        self.times.record(self.now - ended.began);
        for loser in losers {
            self.at(loser.ends, Event::LeaseEnds(loser.id.0));
            self.report(loser, Err(Failure::Late));
        }
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.won = Some(ended);
        }
        if self.early_close {
            self.after_ms(0..20, Event::Answer(number));
        } else {
            self.answer(number);
        }
    }

    /// After a failure, or after a wait because all have failed.
    pub fn retry(&mut self, number: u32) {
        let Some(connection) = self.connections.get(&number) else { return };
        if !connection.pending.is_empty() || connection.won.is_some() {
            return;
        }
        let more = connection.attempts < ATTEMPTS;
        let untried = self.candidates(&connection.tried).0.iter().any(|candidate| candidate.1);
        if !more || connection.tried.is_empty() && !untried {
            self.connections.remove(&number);
        } else if !untried {
            let round = connection.rounds;
            let wait = self.backoff.wait(round, &mut self.rng);
            assert!(wait <= self.backoff.cap);
            let connection = self.connections.get_mut(&number).expect("looked up above");
            connection.tried.clear();
            connection.rounds += 1;
            self.after(wait, Event::Retry(number));
        } else if self.spend() {
            self.tally.retries += 1;
            self.attempt(number);
        } else {
            self.connections.remove(&number);
        }
    }

    fn give_up_if_idle(&mut self, number: u32) {
        let idle = |connection: &Connection| connection.pending.is_empty();
        if self.connections.get(&number).is_some_and(idle) {
            self.connections.remove(&number);
        }
    }

    /// The backend has answered, or closed.
    pub fn answer(&mut self, number: u32) {
        let Some(connection) = self.connections.remove(&number) else { return };
        let attempt = connection.won.expect("an established one");
        let (key, fate) = (attempt.id.0, attempt.fate);
        let outcome = match fate {
            Fate::Closes if self.early_close => Err(Failure::EarlyClose),
            _ => Ok(()),
        };
        self.report(attempt, outcome);
        if fate == Fate::Closes {
            self.end_lease(key);
        } else {
            self.tally.served += 1;
            self.after_ms(1..SESSION_MS, Event::LeaseEnds(key));
        }
        assert!(!self.calm || connection.attempts == 1, "all is well: the first attempt serves");
    }

    /// The client is gone: what was under way is neither success nor failure.
    pub fn leave(&mut self, number: u32) {
        let Some(connection) = self.connections.remove(&number) else { return };
        let established = connection.won.into_iter().map(|attempt| (self.now, attempt));
        let pending = connection.pending.into_iter().map(|attempt| (attempt.ends, attempt));
        for (ends, attempt) in established.chain(pending).collect::<Vec<_>>() {
            self.at(ends, Event::LeaseEnds(attempt.id.0));
            let Some((claim, round)) = attempt.trial else { continue };
            self.tally.cancelled_trials += 1;
            let Some(backend) = self.backend(attempt.id) else { continue };
            // Some hang instead: their place is free again in the next round.
            if !number.is_multiple_of(4) {
                backend.referee.tried(round, None);
                backend.passive.trials.cancelled(claim);
            }
        }
    }

    pub fn end_lease(&mut self, key: u32) {
        let active = self.active.get_mut(&key).expect("a lease that ends was taken");
        *active = active.checked_sub(1).expect("never below zero");
        if *active == 0 {
            self.active.remove(&key);
        }
    }

    fn report(&mut self, attempt: Attempt, outcome: Result<(), Failure>) {
        let thresholds = self.thresholds;
        let Some(backend) = self.backend(attempt.id) else { return };
        let asks = match (attempt.trial, outcome) {
            (None, outcome) => backend.passive.recorder.record(outcome, &thresholds),
            (Some((claim, round)), Ok(())) => {
                backend.referee.tried(round, Some(true));
                backend.passive.trials.succeeded(claim)
            }
            (Some((claim, round)), Err(failure)) => {
                backend.referee.tried(round, Some(false));
                backend.passive.trials.failed(claim, failure)
            }
        };
        // Control is never at once, and now and then the call gets lost.
        if asks && self.rng.u32(..10) > 0 {
            self.after_ms(0..5, Event::Look(attempt.id));
        }
    }
}
