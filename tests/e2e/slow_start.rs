//! A backend that comes up under load gets its share bit by bit.

use std::time::{Duration, Instant};

use crate::harness::{Instance, Load, Pointsman, one_listener, pass, wait_until};

const MS: Duration = Duration::from_millis(1);

fn start(instances: &[Instance; 3], keys: &str) -> Pointsman {
    let addresses = instances.each_ref().map(Instance::address);
    let yaml = one_listener("", &addresses.each_ref().map(String::as_str), keys);
    let health = "health: { interval: 100ms, rise: 1, fall: 1 }";
    Pointsman::start(&yaml.replace("health: off", health))
}

fn instances() -> [Instance; 3] {
    [(); 3].map(|()| Instance::start())
}

/// Under load by so many clients, quick and slow, the third instance goes down and comes back. The
/// shares that `measure` finds of what is between two moments after that, in parts of a whole one.
fn comes_back(
    policy: &str,
    clients: (usize, usize),
    moments: [u32; 4],
    measure: impl Fn([usize; 3], [usize; 3], &[Instance; 3]) -> [f64; 3],
) -> [f64; 4] {
    let mut instances = instances();
    let pointsman = start(&instances, &format!("balance: {policy}, slow_start: 1800ms"));
    let address = instances[2].address();
    instances[2].stop();
    wait_until("it to be down", || pointsman.state(&address) == "down");
    let edge = pointsman.address("edge");
    // Six groups, so that the slow requests do not all begin at once.
    let groups = [(); 6].map(|()| {
        let load = Load::start(&edge, clients.0 / 6, clients.1 / 6);
        pass(83 * MS);
        load
    });
    instances[2].restart();
    wait_until("it to be up", || pointsman.state(&address) == "up");
    let up = Instant::now();
    let taken = || instances.each_ref().map(Instance::taken);
    let mut before = taken();
    let shares = moments.map(|moment| {
        pass((moment * MS).saturating_sub(up.elapsed()));
        let now = taken();
        let [a, b, c] = measure(before, now, &instances);
        before = now;
        assert!(a + b > 30.0, "{a} and {b} are too few to judge");
        c / ((a + b + c) / 3.0)
    });
    for load in groups {
        assert_eq!(load.stop().1, [""; 0]);
    }
    pointsman.wait_idle();
    pointsman.stop();
    eprintln!("{policy}: {shares:.2?} of a whole share after {moments:?} ms");
    shares
}

/// A tenth of its share at first, all of it in the end, and no failure on the way.
fn check([first, second, third, whole]: [f64; 4]) {
    let shares = [first, second, third, whole];
    assert!((0.02..0.35).contains(&first), "{shares:?}");
    assert!(first < second && second < third, "{shares:?}");
    assert!((0.8..1.2).contains(&whole), "{shares:?}");
}

#[test]
fn the_share_of_connections_grows() {
    check(comes_back("round_robin", (12, 0), [200, 900, 1800, 2400], |before, now, _| {
        [0, 1, 2].map(|index| (now[index] - before[index]) as f64)
    }));
}

/// Where picks go by load, it is the share of that.
#[test]
fn the_share_of_load_grows() {
    check(comes_back("least_conn", (0, 60), [190, 900, 1500, 2800], |_, _, instances| {
        instances.each_ref().map(|instance| instance.open() as f64)
    }));
}

/// Not at the start of the process, when everybody is as cold as everybody else.
#[test]
fn nobody_warms_up_with_the_process() {
    let instances = instances();
    let pointsman = start(&instances, "balance: round_robin, slow_start: 1h");
    let load = Load::start(&pointsman.address("edge"), 2, 0);
    load.wait_for(300);
    let (answered, failures) = load.stop();
    assert_eq!(failures, [""; 0]);
    for instance in &instances {
        let taken = instance.taken();
        assert!(taken.abs_diff(answered / 3) <= 2, "{taken} of {answered}");
    }
    pointsman.stop();
}
