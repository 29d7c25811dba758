//! The wall clock jumps by an hour, there and back. What is a duration is measured by a clock that
//! does not: checks, ejections and timeouts go on as before. By libfaketime, and on the wall clock
//! alone, as in life.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::harness::{Backend, Pointsman, fresh_directory, pass, wait_until};

const MS: Duration = Duration::from_millis(1);

/// The wall clock of a process.
struct Clock(PathBuf);

impl Clock {
    fn new() -> Self {
        let clock = Clock(fresh_directory());
        clock.set("+0");
        clock
    }

    fn file(&self) -> PathBuf {
        self.0.join("clock")
    }

    /// Lets it jump, to so far from the true time.
    fn set(&self, offset: &str) {
        // Renamed: half a file is never read.
        let new = self.0.join("new");
        fs::write(&new, offset).unwrap();
        fs::rename(new, self.file()).unwrap();
    }

    fn start(&self, yaml: &str) -> Pointsman {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pointsman"));
        command
            .env("LD_PRELOAD", library())
            .env("FAKETIME_TIMESTAMP_FILE", self.file())
            .env("FAKETIME_NO_CACHE", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        let mut pointsman = Pointsman::spawn_by(command, yaml);
        pointsman.wait_ready();
        pointsman
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        let _kept = fs::remove_dir_all(&self.0);
    }
}

fn library() -> PathBuf {
    let folders = fs::read_dir("/usr/lib").unwrap().flatten().map(|entry| entry.path());
    let mut found = folders.map(|folder| folder.join("faketime/libfaketimeMT.so.1"));
    found.find(|path| Path::exists(path)).expect("faketime is installed")
}

const LOST: [(&str, &str); 1] = [("listener", "lost")];

/// Hours since the epoch of a record's time.
fn hour(time: &str) -> u32 {
    let (date, clock) = time.split_once('T').unwrap();
    let day: u32 = date.rsplit_once('-').unwrap().1.parse().unwrap();
    day * 24 + clock[..2].parse::<u32>().unwrap()
}

#[test]
fn an_hour_there_and_back_changes_nothing() {
    let (echo, hole) = (Backend::echo(), Backend::black_hole());
    let (address, dead) = (echo.address(), hole.address());
    let yaml = format!(
        "listeners:\n\
         \x20 edge: {{ bind: \"127.0.0.1:0\", pool: pool, timeouts: {{ idle: 30m, lifetime: 50m }} }}\n\
         \x20 short: {{ bind: \"127.0.0.1:0\", pool: pool, timeouts: {{ idle: 400ms }} }}\n\
         \x20 lost: {{ bind: \"127.0.0.1:0\", pool: lost }}\n\
         pools:\n\
         \x20 pool: {{ backends: [\"{address}\"], health: {{ interval: 100ms }} }}\n\
         \x20 lost: {{ backends: [\"{dead}\"], health: off, connect: {{ timeout: 300ms, attempts: 1 }} }}\n"
    );
    let clock = Clock::new();
    let pointsman = clock.start(&yaml);
    let checks = || {
        let labels = [("pool", "pool"), ("backend", &*address), ("result", "pass")];
        pointsman.metrics().value("pointsman_backend_checks_total", &labels)
    };
    let mut long = pointsman.connect("edge");
    long.send(100);
    long.receive(100);
    let mut rounds = 0.0;
    for offset in ["+3600s", "-3600s", "+0"] {
        let mut short = pointsman.connect("short");
        let mut lost = pointsman.connect("lost");
        let since = Instant::now();
        short.send(1);
        short.receive(1);
        // It has its time of day from when it is accepted.
        rounds += 1.0;
        let accepted = || pointsman.metrics().value("pointsman_connections_total", &LOST) >= rounds;
        wait_until("both to be accepted", accepted);
        clock.set(offset);
        let before = checks();
        // Each of them ends in its own time, of which most comes after the jump.
        lost.expect_end();
        let took = since.elapsed();
        assert!((250 * MS..1500 * MS).contains(&took), "{offset}: connecting took {took:?}");
        short.expect_end();
        let took = since.elapsed();
        assert!((400 * MS..1500 * MS).contains(&took), "{offset}: idle for {took:?}");
        pass((600 * MS).saturating_sub(since.elapsed()));
        let count = checks() - before;
        let paced = since.elapsed().as_secs_f64() / 0.1;
        assert!((3.0..=paced * 1.3 + 1.0).contains(&count), "{offset}: {count} checks");
        long.send(100);
        long.receive(100);
        let age = &pointsman.backend(&address)["last_check"]["age_seconds"];
        assert!((0.0..5.0).contains(&age.as_f64().unwrap()), "{offset}: {age}");
    }
    drop(long);
    let log = pointsman.log();
    assert_eq!(log.matches("backend changed").count(), 1, "{log}");
    let records = pointsman.stop();
    // The test's own check: the process has seen the clock jump. Sessions that began after the
    // first jump say so, and those of the last round that it went back.
    let of_lost = records.iter().filter(|record| record.text("listener") == "lost");
    let hours: Vec<u32> = of_lost.map(|record| hour(record.text("time"))).collect();
    assert!(hours[1] > hours[0] && hours[2] < hours[0], "{hours:?}");
    for record in &records {
        let expected = match record.text("listener") {
            "edge" => "client_closed",
            "short" => "idle_timeout",
            _ => "connect_failed",
        };
        assert_eq!(record.text("termination"), expected);
        let ms = record.number("duration_ms");
        assert!((100.0..20_000.0).contains(&ms), "{record:?}");
    }
}

/// An ejection lasts as long as it lasts.
#[test]
fn an_ejection_does_not_end_early() {
    let (good, hole) = (Backend::echo(), Backend::refusing());
    let yaml = crate::harness::one_listener(
        "",
        &[&good.address(), &hole.address()],
        "outlier: { base_ejection: 30m }, slow_start: 10m",
    );
    let clock = Clock::new();
    let pointsman = clock.start(&yaml);
    wait_until("it to be ejected", || {
        assert!(pointsman.echoes());
        pointsman.state(&hole.address()) == "ejected"
    });
    let refused = || {
        let address = hole.address();
        let labels = [("pool", "pool"), ("backend", &*address), ("reason", "refused")];
        pointsman.metrics().value("pointsman_backend_connect_failures_total", &labels)
    };
    let before = refused();
    for offset in ["+3600s", "-3600s"] {
        clock.set(offset);
        for _ in 0..20 {
            assert!(pointsman.echoes());
        }
        assert_eq!((refused(), &*pointsman.state(&hole.address())), (before, "ejected"));
    }
    pointsman.stop();
}
