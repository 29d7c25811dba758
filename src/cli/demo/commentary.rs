//! What the demo says while it runs and at its end: counts in, lines out.

use std::fmt::Write;
use std::io;
use std::time::{Duration, Instant};

use super::super::table::{Align, Table};
use super::traffic::is_wrong_certificate;
use crate::health::State;

/// Counts requests and follows the states of backends.
#[derive(Debug)]
pub struct Commentary {
    began: Instant,
    backends: Vec<Backend>,
    failed: u64,
    /// Failures because the wrong site answered.
    wrong_certificate: u64,
    /// Failures already told.
    failed_told: u64,
    /// What the first failure was.
    first_failure: Option<String>,
    /// When the latest answer came.
    last_answer: Instant,
    longest_gap: Duration,
    retries_told: u64,
}

#[derive(Debug)]
struct Backend {
    name: &'static str,
    state: State,
    answered: u64,
    /// Answers already told.
    told: u64,
}

impl Commentary {
    /// All backends are up.
    pub fn new(began: Instant, names: &[&'static str]) -> Self {
        let backend = |&name| Backend { name, state: State::Up, answered: 0, told: 0 };
        Commentary {
            began,
            backends: names.iter().map(backend).collect(),
            failed: 0,
            wrong_certificate: 0,
            failed_told: 0,
            first_failure: None,
            last_answer: began,
            longest_gap: Duration::ZERO,
            retries_told: 0,
        }
    }

    /// Takes note of a finished request.
    pub fn finished(&mut self, at: Instant, result: &io::Result<String>) {
        match result {
            Ok(name) => {
                self.gap(at);
                self.last_answer = at;
                if let Some(backend) = self.backends.iter_mut().find(|b| b.name == name) {
                    backend.answered += 1;
                }
            }
            Err(error) => {
                self.failed += 1;
                self.wrong_certificate += u64::from(is_wrong_certificate(error));
                self.first_failure.get_or_insert_with(|| error.to_string());
            }
        }
    }

    fn gap(&mut self, now: Instant) {
        self.longest_gap = self.longest_gap.max(now.saturating_duration_since(self.last_answer));
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

    /// A line about the requests since the last one.
    pub fn requests(&mut self, now: Instant, retries: u64) -> String {
        let mut text = String::from("answered ");
        for backend in &mut self.backends {
            let answered =
                backend.answered - std::mem::replace(&mut backend.told, backend.answered);
            push(&mut text, format_args!(" {} {answered:>3}  ", backend.name));
        }
        let failed = self.failed - std::mem::replace(&mut self.failed_told, self.failed);
        push(&mut text, format_args!(" failed {failed:>2}"));
        let retried = retries - std::mem::replace(&mut self.retries_told, retries).min(retries);
        if retried > 0 {
            push(&mut text, format_args!("   retried elsewhere {retried}"));
        }
        line(self.began, now, &text)
    }

    /// The table at the end.
    pub fn summary(&mut self, now: Instant, retries: u64) -> String {
        self.gap(now);
        let answered: u64 = self.backends.iter().map(|b| b.answered).sum();
        let mut table = Table::new(&[("SUMMARY", Align::Left), ("", Align::Right)]);
        let seconds = now.saturating_duration_since(self.began).as_secs_f64();
        table.row(["time".into(), format!("{seconds:.1} s")]);
        table.row(["requests".into(), (answered + self.failed).to_string()]);
        for backend in &self.backends {
            let name = format!("  answered by {}", backend.name);
            table.row([name, backend.answered.to_string()]);
        }
        table.row(["  failed".into(), self.failed.to_string()]);
        table.row(["wrong certificate".into(), self.wrong_certificate.to_string()]);
        table.row(["retried on another backend".into(), retries.to_string()]);
        let gap = self.longest_gap.as_millis();
        table.row(["longest gap between answers".into(), format!("{gap} ms")]);
        let verdict = match (self.failed, &self.first_failure) {
            (0, _) => "No client noticed that backends failed.".to_owned(),
            (failed, first) => {
                let first = first.as_deref().unwrap_or("unknown");
                format!("{failed} requests failed; the first one: {first}.")
            }
        };
        format!("\n{}\n{verdict}\n", table.render())
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
    use super::*;

    #[test]
    fn says_what_happened_and_nothing_twice() {
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let mut commentary = Commentary::new(began, &["b1", "b2"]);
        let ok = |name: &str| Ok(name.to_owned());
        commentary.finished(at(50), &ok("b1"));
        commentary.finished(at(100), &ok("b2"));
        commentary.finished(at(150), &ok("b1"));
        let line = "   2.0 s  answered  b1   2   b2   1   failed  0\n";
        assert_eq!(commentary.requests(at(2000), 0), line);

        let line = "   2.1 s  demo      b2 is killed\n";
        assert_eq!(commentary.event(at(2100), "b2", "is killed"), line);
        commentary.finished(at(1150), &ok("b1"));
        commentary.finished(at(1160), &Err(io::ErrorKind::ConnectionReset.into()));
        let states = [("b1".to_owned(), State::Up), ("b2".to_owned(), State::Down)];
        let line = "   3.0 s  balancer  b2 failed two checks: it is down and gets nothing\n";
        assert_eq!(commentary.states(at(3000), &states), line);
        assert_eq!(commentary.states(at(3100), &states), "");
        let line = "   4.0 s  answered  b1   1   b2   0   failed  1   retried elsewhere 3\n";
        assert_eq!(commentary.requests(at(4000), 3), line);
        let line = "   6.0 s  answered  b1   0   b2   0   failed  0\n";
        assert_eq!(commentary.requests(at(6000), 3), line);
    }

    #[test]
    fn summary_is_honest() {
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let mut commentary = Commentary::new(began, &["b1"]);
        commentary.finished(at(100), &Ok("b1".to_owned()));
        let expected = "
SUMMARY
time                          0.5 s
requests                          1
  answered by b1                  1
  failed                          0
wrong certificate                 0
retried on another backend        2
longest gap between answers  400 ms

No client noticed that backends failed.
";
        assert_eq!(commentary.summary(at(500), 2), expected);
        commentary.finished(at(600), &Err(io::ErrorKind::ConnectionRefused.into()));
        let summary = commentary.summary(at(700), 2);
        assert!(summary.ends_with("\n1 requests failed; the first one: connection refused.\n"));
    }
}
