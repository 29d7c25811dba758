//! From a command line to what is printed.

use clap::Parser;
use serde_json::Value;

use super::*;
use crate::cli::args::Command;
use crate::config;
use crate::simulate::scenario::{Checks, Outlier, Scenario};

fn parse(line: &str) -> Result<Simulate, String> {
    let words = ["pointsman", "simulate"].into_iter().chain(line.split_whitespace());
    match Arguments::try_parse_from(words).map_err(|error| error.to_string())?.command {
        Command::Simulate(args) => Ok(args),
        other => panic!("{other:?}"),
    }
}

/// What it prints, or why not.
fn printed(line: &str) -> Result<String, String> {
    match parse(line)? {
        Simulate::Sum(Sum::Plan(args)) => Ok(sums::plan(&args).unwrap()),
        Simulate::Sum(Sum::Tail(args)) => Ok(sums::tail(&args).unwrap()),
        Simulate::Workload(workload) => {
            let simulation = simulation(&workload).map_err(|error| error.to_string())?;
            answer(&workload, &simulation).map_err(|error| error.to_string())
        }
    }
}

fn json(line: &str) -> Value {
    serde_json::from_str(&printed(&format!("{line} --format json")).unwrap()).unwrap()
}

const THIRTY: &str =
    "--backends 3 --clients 30 --requests 2000 --service constant:20ms --hop 0.2ms";

#[test]
fn a_run_is_printed() {
    let expected = "\
3 backends of 4 slots, service constant:20ms, hop 200us, 30 clients, 2000 requests, seed 0

POLICY       COMPLETED  FAILED  OPEN  TOTAL ms  MEAN ms   P50  P95  P99   MAX  MAX/MEAN  MOVED  SHARE %
round_robin       2000       0     0    3340.4   49.786  40.4   60   60  60.4      1.00      -  33/33/33
";
    assert_eq!(printed(&format!("--policy round_robin {THIRTY} --no-chart")).unwrap(), expected);
    let charted = printed(&format!("--policy round_robin {THIRTY}")).unwrap();
    let chart = charted.strip_prefix(expected).unwrap();
    let rows: Vec<&str> = chart.lines().collect();
    assert!(rows[1].starts_with("round_robin: requests under way; a column is "), "{chart}");
    assert!(rows[3].starts_with("      1  33.4 %    10  ███████"), "{chart}");
    assert_eq!(rows.len(), 6);
}

#[test]
fn a_run_as_json() {
    let answer = json(&format!("--policy round_robin,hash {THIRTY}"));
    assert_eq!(answer["scenario"]["clients"], 30);
    assert_eq!(answer["scenario"]["rate"], Value::Null);
    let [turns, hash] = &answer["policies"].as_array().unwrap()[..] else { panic!("{answer}") };
    assert_eq!((&turns["policy"], &hash["policy"]), (&"round_robin".into(), &"hash".into()));
    assert_eq!(turns["total_ms"], 3340.4);
    let latency = &turns["latency_ms"];
    let found = ["mean", "p50", "p95"].map(|key| latency[key].as_f64().unwrap());
    assert_eq!(found, [49.786, 40.4, 60.0]);
    let picked = [0, 1, 2].map(|index| turns["backends"][index]["picked"].as_u64().unwrap());
    assert_eq!(picked, [667, 667, 666]);
    assert_eq!((&turns["keys_moved"], &hash["keys_moved"]), (&Value::Null, &0.0.into()));
    assert_eq!(printed(&format!("{THIRTY} --seed 7")), printed(&format!("{THIRTY} --seed 7")));
}

/// What an operator reads of a backend that dies.
#[test]
fn events_are_told() {
    let line = "--policy ring,p2c --backends 4 --rate 200 --service exp:10ms --duration 60s \
                --slow 1:2 --stall 2:1ms --kill 3@20s --revive 3@40s --no-chart";
    let text = printed(line).unwrap();
    assert!(text.contains("4 backends of 4 slots, service exp:10ms, hop 0s, 200/s, 1m, seed 0\n"));
    assert!(text.contains("\nload 14.7 % of capacity\n"), "{text}");
    for column in ["  CONNECT P99  RETRIES  EJECTED  MAX/MEAN ", "\nring: lost "] {
        assert!(text.contains(column), "{text}");
    }
    assert!(!text.contains("HEDGES"), "there were none: {text}");
    assert_eq!(text.matches("  backend 3 ejected for 10s (connect)").count(), 2, "{text}");
    assert!(text.contains(" of keys moved, 0.0 % between the others\n"), "{text}");
    assert_eq!(text.matches("  backend 3 down").count(), 2, "{text}");
    assert_eq!(text.matches("  backend 3 up").count(), 2, "{text}");
    let overload = "--backends 1 --slots 1 --rate 200 --service 10ms --duration 1s --no-chart";
    assert!(printed(overload).unwrap().contains("load 200.0 % of capacity: the queues grow"));
    let many = printed("--backends 20 --rate 1000 --service 1ms --duration 1s").unwrap();
    assert!(
        many.contains("–") && many.contains("\n     16  ") && many.contains("\n... 4 more with "),
        "{many}"
    );
    let dead = "--backends 1 --rate 10 --service 1ms --duration 9s --kill 1@0s --no-chart";
    let dead = printed(dead).unwrap();
    assert!(dead.contains("backend 1 down; panic: states are ignored\n"), "{dead}");
    assert!(dead.contains("\nleast_conn: connect_failed "), "{dead}");
}

/// Hedges and ejections as text and for programs, and the flags that end them.
#[test]
fn attempts_are_told() {
    let line = "--policy round_robin --backends 3 --rate 300 --service 10ms --duration 10s \
                --vanish 2@5s --no-chart";
    let hedged = printed(&format!("{line} --hedge-after 50ms")).unwrap();
    assert!(hedged.contains("  CONNECT P99  HEDGES  EJECTED  MAX/MEAN "), "{hedged}");
    assert!(hedged.contains(" s  backend 2 ejected for 10s (late)\n"), "{hedged}");
    let answer = json(&format!("{line} --hedge-after 50ms --slow-start 30s --no-checks"));
    let policy = &answer["policies"][0];
    assert_eq!((&policy["ejections"], &policy["connect_ms"]["max"]), (&1.into(), &50.0.into()));
    assert!(policy["hedges"].as_u64().unwrap() >= 3, "{policy}");
    let change = &policy["changes"][0];
    assert_eq!((&change["state"], &change["reason"]), (&"ejected".into(), &"failures".into()));
    assert_eq!(change["ejected_for_ms"], 10_000.0);
    let off = json(&format!("{line} --outlier off --retry-budget off --backup 3 --attempts 1"));
    let policy = &off["policies"][0];
    assert_eq!((&policy["ejections"], &policy["retries"]), (&0.into(), &0.into()));
    assert_eq!(policy["backends"][2]["picked"], 0);
    let full = json("--backends 2 --clients 3 --service 10ms --requests 20 --max-connections 1");
    assert!(full["policies"][0]["failures"]["no_backend"].as_u64() > Some(0), "{full}");
}

#[test]
fn wrong_usage_is_told() {
    let check = |line: &str, expected: &str| {
        let error = printed(line).unwrap_err();
        assert!(error.contains(expected), "{line}: {error}");
    };
    let base = "--backends 3 --service 5ms --duration 1s";
    let rated = "--backends 3 --service 5ms --duration 1s --rate 10";
    check("", "--backends <N>");
    check("--backends 3 --service 5ms --rate 10", "<--requests <N>|--duration <TIME>>");
    check(base, "<--rate <R>|--clients <N>>");
    check(&format!("{rated} --clients 3"), "cannot be used with");
    check(&format!("{rated} --think 3ms"), "cannot be used with");
    check(&format!("{rated} --no-checks --rise 3"), "cannot be used with");
    check(&format!("{base} --rate 0"), "not a number above 0; write a rate a second like 500");
    check(&format!("{base} --rate nan"), "not a number above 0");
    check(&format!("{base} --rate 2000000000"), "above 1000000000 a second");
    check(&format!("{base} --clients 0"), "0 clients; 1 to");
    check(&format!("{base} --clients -1"), "unexpected argument");
    check(&format!("{rated} --policy least_con"), "'least_conn'");
    check(&format!("{rated} --policy p2c,p2c"), "p2c twice");
    check(&format!("{rated} --slow 0:6"), "backends are numbered from 1");
    check(&format!("{rated} --slow 4:6"), "there is no backend 4; they are 1 to 3");
    check(&format!("{rated} --slow 1@6"), "not K:FACTOR, like 2:6");
    check(&format!("{rated} --slow 1:0"), "FACTOR: not a number above 0");
    check(&format!("{rated} --stall 1:30"), "TIME: not a number and a unit");
    check(&format!("{rated} --kill 1:5s"), "not K@T, like 2@10s");
    check(&format!("{rated} --kill 4@5s"), "there is no backend 4");
    check(&format!("{rated} --weights 1,2"), "2 weights for 3 backends; give one for each");
    check(&format!("{rated} --weights 0,0,0"), "all weights are 0");
    check(&format!("{rated} --hot 2"), "not between 0 and 1");
    check(&format!("{rated} --panic-threshold 101"), "not 0 to 100, or off");
    check(&format!("{rated} --retry-budget much"), "not 0 to 100, or off");
    check(&format!("{rated} --hedge-after 100"), "not a time like 100ms, auto or off");
    check(&format!("{rated} --slow-start never"), "not a time like 30s, or off");
    check(&format!("{rated} --consecutive-failures 70000"), "not a whole number in range, or off");
    check(&format!("{rated} --consecutive-failures 0"), "0 failures in a row; 1 to 1000");
    check(&format!("{rated} --minimum-volume 51"), "a volume of 51; 1 to 50 are possible");
    check(&format!("{rated} --outlier on"), "[possible values: off]");
    check(&format!("{rated} --outlier off --max-ejection 1m"), "cannot be used with");
    check(&format!("{rated} --total-timeout 0s"), "as long as the timeout of all attempts");
    check(&format!("{rated} --backup 0"), "backends are numbered from 1");
    check(&format!("{rated} --backup 4"), "there is no backend 4");
    check(&format!("{rated} --bounded-load 0.5"), "not 1.0 to 100.0; 1.25 is usual");
    check(&format!("{rated} --policy maglev --table-size 100"), "must be prime");
    check("--backends 9999999999999 --service 5ms --rate 1 --requests 1", "backends; 1 to 10000");
    check("--backends 1 --service gauss:5ms --rate 1 --requests 1", "not a distribution; write");
    check("--backends 1 --service 5ms --rate 1e9 --requests 1", "not a number above 0");
    check("--backends 3 plan", "the subcommand 'plan' cannot be used with");
    check("plan --rate 1 --latency 1s", "--per-node <C>");
    check("plan --rate 1 --latency 1s --per-node 0", "0 is not in 1..");
    check("plan --rate 1 --latency 1s --per-node 1 --nodes 0", "0 is not in 1..");
    check("plan --rate -1 --latency 1s --per-node 1", "unexpected argument");
    check("plan --rate 1 --latency 1s --per-node 1 --headroom 2000%", "above 1000 %");
    check("plan --rate 1 --latency 1s --per-node 1 --headroom much", "not a share");
    check("tail --p 2 --fan-out 1", "not between 0 and 1");
    check("tail --p 0.1 --fan-out 0", "0 is not in 1..");
}

/// A run that is left to its defaults is checked, connects and panics as a pool of this program.
#[test]
fn defaults_are_those_of_the_configuration() {
    let [listen, backend] = ["127.0.0.1:1", "127.0.0.1:2"].map(|text| vec![text.to_owned()]);
    let pool = &config::from_flags(&listen, &backend, None, None).unwrap().pools[0];
    let Simulate::Workload(workload) = parse(THIRTY).unwrap() else { panic!("a workload") };
    let scenario = workload.scenario().unwrap();
    let config::HealthCheck { interval, fast_interval, timeout, rise, fall, .. } =
        *pool.health.as_ref().unwrap();
    let checks = Checks { interval, fast_interval, timeout, rise, fall };
    assert_eq!(scenario.checks, Some(checks));
    let config::Outlier { thresholds, terms, max_ejected_percent, early_close } =
        pool.outlier.unwrap();
    assert!(!early_close, "the simulator has none");
    assert_eq!(scenario.outlier, Some(Outlier { thresholds, terms, max_ejected_percent }));
    let threshold = match pool.panic_threshold {
        config::PanicThreshold::Percent(percent) => Some(percent),
        config::PanicThreshold::Off => None,
    };
    assert_eq!(scenario.panic_threshold, threshold);
    assert_eq!(scenario.connect, pool.connect);
    assert_eq!(scenario.slow_start, pool.slow_start);
    // Those of the library are the same.
    let plain = Scenario::new(3, 4, scenario.service, scenario.load);
    assert_eq!((plain.checks, plain.outlier), (scenario.checks, scenario.outlier));
    assert_eq!((plain.connect, plain.slow_start), (scenario.connect, scenario.slow_start));
    let [spec] = workload.specs()[..] else { panic!("one policy") };
    assert_eq!((spec.policy, spec.table_size), (pool.balance.policy, pool.balance.table_size));
}

#[test]
fn fleets_are_sized() {
    let line = "plan --rate 36000 --latency 65ms --per-node 800 --headroom 25% --spare 2";
    let expected = "\
in flight      2340 = 36000/s × 65ms
with headroom  2925, 25 % on top
nodes needed   6 = 4 of 800 each, and 2 spare
utilisation    48.8 % on 6, latency × 1.95
after a loss   73.1 % on 4, latency × 3.72, with 2 lost
warning: above 70 % after the loss of 2; small peaks become long queues
";
    assert_eq!(printed(line).unwrap(), expected);
    for headroom in ["0.25", "25"] {
        assert_eq!(printed(&line.replace("25%", headroom)).unwrap(), expected);
    }
    let six = printed(&format!("{} --nodes 6", line.replace("65ms", "260ms"))).unwrap();
    let verdict = "nodes given    6: not enough by 11; short by 4560 of raw capacity, 4800\n";
    assert!(six.contains(verdict) && six.contains("6, queues without end\n"), "{six}");
    let few = printed(&format!("{line} --nodes 3")).unwrap();
    assert!(few.contains("3: not enough by 3, for headroom and spares; raw capacity is 2400\n"));
    assert!(printed(&format!("{line} --nodes 8")).unwrap().contains("8: enough\n"));
    let one = printed(&format!("{line} --nodes 1")).unwrap();
    assert!(one.contains("after a loss   nothing left, with 2 lost\n"), "{one}");

    let answer = json(&format!("{} --nodes 6", line.replace("65ms", "260ms")));
    assert_eq!((&answer["enough"], &answer["nodes_needed"]), (&false.into(), &17.into()));
    assert_eq!(answer["short_of_raw_capacity"], 4560.0);
    assert_eq!(answer["whole"]["latency_factor"], Value::Null);
}

#[test]
fn tails_are_told() {
    let check = |line: &str, expected: &str| assert_eq!(printed(line).unwrap(), expected, "{line}");
    check(
        "tail --p 0.015 --fan-out 40 --target 5%",
        "45.4 % of requests that wait for 40 services meet a slow one, at 1.5 % each\n\
         below 5 % up to a fan-out of 3\n",
    );
    check(
        "tail --p 0.2% --fan-out 40 --target 0.1%",
        "7.7 % of requests that wait for 40 services meet a slow one, at 0.2 % each\n\
         below 0.1 % at no fan-out: a single service is slow more often\n",
    );
    check(
        "tail --p 0 --fan-out 1",
        "0.0 % of requests that wait for 1 service meet a slow one, at 0 % each\n\
         below 5 % at any fan-out\n",
    );
    let answer = json("tail --p 0.015 --fan-out 40");
    assert_eq!(answer["largest_fan_out"], 3);
    assert!((answer["chance"].as_f64().unwrap() - 0.454).abs() < 0.0005);
}
