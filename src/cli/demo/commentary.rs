//! What the demo says while it runs and at its end: counts in, lines out.

use std::fmt::Write;
use std::time::{Duration, Instant};

use super::super::table::{Align, Table};
use super::questions::AGAIN;
use super::traffic::{Finished, Kind, is_wrong_certificate};
use crate::health::State;

/// Counts requests and questions, and follows the states of backends.
#[derive(Debug)]
pub(super) struct Commentary {
    began: Instant,
    backends: Vec<Backend>,
    requests: Tally,
    questions: Tally,
    /// Failures because the wrong site answered.
    wrong_certificate: u64,
    /// Failures already told.
    failed_told: u64,
    retries_told: u64,
    /// How often questions were asked again, and how much of that has been told.
    again: u64,
    again_told: u64,
}

/// All requests, or all questions.
#[derive(Debug)]
struct Tally {
    failed: u64,
    /// What the first failure was.
    first_failure: Option<String>,
    /// When the latest answer came.
    last_answer: Instant,
    longest_gap: Duration,
}

#[derive(Debug)]
struct Backend {
    kind: Kind,
    name: &'static str,
    state: State,
    answered: u64,
    /// Answers already told.
    told: u64,
}

impl Commentary {
    /// All backends are up.
    pub fn new(began: Instant, sites: &[&'static str], names: &[&'static str]) -> Self {
        let backend =
            |kind| move |&name| Backend { kind, name, state: State::Up, answered: 0, told: 0 };
        let sites = sites.iter().map(backend(Kind::Request));
        Commentary {
            began,
            backends: sites.chain(names.iter().map(backend(Kind::Question))).collect(),
            requests: Tally::new(began),
            questions: Tally::new(began),
            wrong_certificate: 0,
            failed_told: 0,
            retries_told: 0,
            again: 0,
            again_told: 0,
        }
    }

    /// Takes note of a finished request or question.
    pub fn finished(&mut self, finished: &Finished) {
        self.again += u64::from(finished.again);
        let tally = match finished.kind {
            Kind::Request => &mut self.requests,
            Kind::Question => &mut self.questions,
        };
        match &finished.result {
            Ok(name) => {
                tally.gap(finished.at);
                tally.last_answer = finished.at;
                if let Some(backend) = self.backends.iter_mut().find(|b| b.name == name) {
                    backend.answered += 1;
                }
            }
            Err(error) => {
                tally.failed += 1;
                self.wrong_certificate += u64::from(is_wrong_certificate(error));
                tally.first_failure.get_or_insert_with(|| error.to_string());
            }
        }
    }

    /// A line for each backend whose state is not what it was.
    pub fn states(&mut self, now: Instant, states: &[(String, State)]) -> String {
        let mut out = String::new();
        for (name, state) in states {
            let Some(backend) = self.backends.iter_mut().find(|b| b.name == name) else { continue };
            let before = std::mem::replace(&mut backend.state, *state);
            if before == *state {
                continue;
            }
            let what = match (before, state) {
                (State::Ejected, State::Up) => "passed a check: it is back and gets its share",
                (_, State::Up) => "passed two checks: it is up and gets its share",
                (_, State::Down) => "failed two checks: it is down and gets nothing",
                (_, State::Ejected) => "refused three clients: it is ejected and gets nothing",
                (_, State::Unknown) => "is not checked yet",
            };
            out.push_str(&line(self.began, now, &format!("balancer  {name} {what}")));
        }
        out
    }

    /// A line about something that the demo does.
    pub fn event(&self, now: Instant, name: &str, what: &str) -> String {
        line(self.began, now, &format!("demo      {name} {what}"))
    }

    /// A line about the requests and questions since the last one.
    pub fn requests(&mut self, now: Instant, retries: u64) -> String {
        let mut text = String::from("answered ");
        for backend in &mut self.backends {
            let answered =
                backend.answered - std::mem::replace(&mut backend.told, backend.answered);
            push(&mut text, format_args!(" {} {answered:>3}  ", backend.name));
        }
        let failed = self.requests.failed + self.questions.failed;
        let failed = failed - std::mem::replace(&mut self.failed_told, failed);
        push(&mut text, format_args!(" failed {failed:>2}"));
        let retried = retries - std::mem::replace(&mut self.retries_told, retries).min(retries);
        if retried > 0 {
            push(&mut text, format_args!("   retried elsewhere {retried}"));
        }
        let again = self.again - std::mem::replace(&mut self.again_told, self.again);
        if again > 0 {
            push(&mut text, format_args!("   asked again {again}"));
        }
        line(self.began, now, &text)
    }

    /// The table at the end.
    pub fn summary(&mut self, now: Instant, retries: u64) -> String {
        self.requests.gap(now);
        self.questions.gap(now);
        let mut table = Table::new(&[("SUMMARY", Align::Left), ("", Align::Right)]);
        let seconds = now.saturating_duration_since(self.began).as_secs_f64();
        table.row(["time".into(), format!("{seconds:.1} s")]);
        self.rows(&mut table, Kind::Request);
        table.row(["wrong certificate".into(), self.wrong_certificate.to_string()]);
        table.row(["retried on another backend".into(), retries.to_string()]);
        self.rows(&mut table, Kind::Question);
        let again = format!("asked again after {} ms", AGAIN.as_millis());
        table.row([again, self.again.to_string()]);
        let failures = self.requests.verdict("requests") + &self.questions.verdict("questions");
        let verdict = match failures.as_str() {
            "" => "No client noticed that backends failed.\n",
            failures => failures,
        };
        format!("\n{}\n{verdict}", table.render())
    }

    fn rows(&self, table: &mut Table, kind: Kind) {
        let (what, tally) = match kind {
            Kind::Request => ("requests", &self.requests),
            Kind::Question => ("questions over UDP", &self.questions),
        };
        let own = || self.backends.iter().filter(|backend| backend.kind == kind);
        let answered: u64 = own().map(|backend| backend.answered).sum();
        table.row([what.into(), (answered + tally.failed).to_string()]);
        for backend in own() {
            let name = format!("  answered by {}", backend.name);
            table.row([name, backend.answered.to_string()]);
        }
        table.row(["  failed".into(), tally.failed.to_string()]);
        let gap = tally.longest_gap.as_millis();
        table.row(["  longest gap between answers".into(), format!("{gap} ms")]);
    }
}

impl Tally {
    fn new(began: Instant) -> Self {
        Tally { failed: 0, first_failure: None, last_answer: began, longest_gap: Duration::ZERO }
    }

    fn gap(&mut self, now: Instant) {
        self.longest_gap = self.longest_gap.max(now.saturating_duration_since(self.last_answer));
    }

    /// A line if some have failed.
    fn verdict(&self, what: &str) -> String {
        let first = self.first_failure.as_deref();
        let line = |first| format!("{} {what} failed; the first one: {first}.\n", self.failed);
        first.map(line).unwrap_or_default()
    }
}

fn line(began: Instant, now: Instant, text: &str) -> String {
    let seconds = now.saturating_duration_since(began).as_secs_f64();
    format!("{seconds:>6.1} s  {text}\n")
}

fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("writing to a String cannot fail");
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn request(at: Instant, result: io::Result<&str>) -> Finished {
        Finished { kind: Kind::Request, at, result: result.map(str::to_owned), again: 0 }
    }

    fn question(at: Instant, result: io::Result<&str>, again: u32) -> Finished {
        Finished { kind: Kind::Question, at, result: result.map(str::to_owned), again }
    }

    #[test]
    fn says_what_happened_and_nothing_twice() {
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let mut commentary = Commentary::new(began, &["b1", "b2"], &["d1"]);
        commentary.finished(&request(at(50), Ok("b1")));
        commentary.finished(&request(at(100), Ok("b2")));
        commentary.finished(&request(at(150), Ok("b1")));
        commentary.finished(&question(at(150), Ok("d1"), 0));
        let line = "   2.0 s  answered  b1   2   b2   1   d1   1   failed  0\n";
        assert_eq!(commentary.requests(at(2000), 0), line);

        let line = "   2.1 s  demo      b2 is killed\n";
        assert_eq!(commentary.event(at(2100), "b2", "is killed"), line);
        commentary.finished(&request(at(1150), Ok("b1")));
        commentary.finished(&request(at(1160), Err(io::ErrorKind::ConnectionReset.into())));
        commentary.finished(&question(at(1160), Err(io::ErrorKind::TimedOut.into()), 7));
        let states = [("b1".to_owned(), State::Up), ("b2".to_owned(), State::Down)];
        let line = "   3.0 s  balancer  b2 failed two checks: it is down and gets nothing\n";
        assert_eq!(commentary.states(at(3000), &states), line);
        assert_eq!(commentary.states(at(3100), &states), "");
        let line = "   4.0 s  answered  b1   1   b2   0   d1   0   failed  2   \
                    retried elsewhere 3   asked again 7\n";
        assert_eq!(commentary.requests(at(4000), 3), line);
        let line = "   6.0 s  answered  b1   0   b2   0   d1   0   failed  0\n";
        assert_eq!(commentary.requests(at(6000), 3), line);
    }

    #[test]
    fn summary_is_honest() {
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let mut commentary = Commentary::new(began, &["b1"], &["d1"]);
        commentary.finished(&request(at(100), Ok("b1")));
        commentary.finished(&question(at(300), Ok("d1"), 1));
        let expected = "
SUMMARY
time                            0.5 s
requests                            1
  answered by b1                    1
  failed                            0
  longest gap between answers  400 ms
wrong certificate                   0
retried on another backend          2
questions over UDP                  1
  answered by d1                    1
  failed                            0
  longest gap between answers  300 ms
asked again after 250 ms            1

No client noticed that backends failed.
";
        assert_eq!(commentary.summary(at(500), 2), expected);
        commentary.finished(&question(at(550), Err(io::ErrorKind::TimedOut.into()), 7));
        let summary = commentary.summary(at(590), 2);
        assert!(summary.ends_with("\n\n1 questions failed; the first one: timed out.\n"));
        commentary.finished(&request(at(600), Err(io::ErrorKind::ConnectionRefused.into())));
        let summary = commentary.summary(at(700), 2);
        let expected = "\n\n1 requests failed; the first one: connection refused.\n\
                        1 questions failed; the first one: timed out.\n";
        assert!(summary.ends_with(expected), "{summary}");
    }
}
