//! Too many flows, or too much from one source: who has to go, and who does not notice.

use std::time::Duration;

use crate::harness::{
    Backend, Metrics, Pointsman, Stream, UdpBackend, UdpClient, one_udp_listener, pass, wait_until,
};

const EDGE: (&str, &str) = ("listener", "edge");

fn choosy() -> UdpBackend {
    UdpBackend::choosy("127.0.0.1:0")
}

/// So many clients that send one datagram, and are not answered. They are kept: another with the same
/// port would be the same flow.
fn flood(edge: &str, clients: usize, kept: &mut Vec<UdpClient>) {
    for _ in 0..clients {
        let client = UdpClient::to(edge);
        client.send("flood");
        kept.push(client);
    }
}

fn flows(metrics: &Metrics) -> f64 {
    let active = metrics.value("pointsman_udp_flows_active", &[EDGE]);
    assert_eq!(active, metrics.active("edge"));
    active
}

fn total(metrics: &Metrics) -> f64 {
    metrics.value("pointsman_udp_flows_total", &[EDGE])
}

fn dropped(metrics: &Metrics, reason: &str) -> f64 {
    metrics.value("pointsman_udp_dropped_total", &[EDGE, ("reason", reason)])
}

#[test]
fn unanswered_flows_make_room() {
    const CAP: usize = 20;
    let backend = choosy();
    let config = |idle: &str| {
        let listener = format!("limits: {{ flows: 20 }}, timeouts: {{ idle: {idle} }}");
        format!("workers: 1\n{}", one_udp_listener(&listener, &[&backend], ""))
    };
    let pointsman = Pointsman::start(&config("1h"));
    let edge = pointsman.address("edge");
    let before = pointsman.usage_at_rest();
    let friends: Vec<_> = (0..10).map(|_| UdpClient::to(&edge)).collect();
    friends.iter().for_each(|client| assert_eq!(client.ask("ask 0"), "ask 0"));
    let mut kept = Vec::new();
    for round in 0..20 {
        flood(&edge, 10, &mut kept);
        pointsman.wait_received();
        assert!(flows(&pointsman.metrics()) <= CAP as f64);
        assert!(pointsman.usage().sockets <= before.sockets + CAP + 1);
        let question = format!("ask {round}");
        friends.iter().for_each(|client| assert_eq!(client.ask(&question), question));
    }
    let metrics = pointsman.metrics();
    assert_eq!((flows(&metrics), total(&metrics)), (CAP as f64, 210.0));
    assert_eq!(metrics.closed("edge", "limit"), 190.0);
    // All datagrams got through: each flow had its turn.
    assert_eq!(metrics.sum("pointsman_udp_dropped_total", EDGE), 0.0);
    wait_until("all of them", || backend.count() == 10 + 200 + 200);
    pointsman.reload(&config("300ms")).unwrap();
    let metrics = pointsman.wait_idle();
    assert_eq!(metrics.closed("edge", "idle_timeout"), CAP as f64);
    assert_eq!(pointsman.usage_at_rest(), before);
    for record in pointsman.stop() {
        if record.text("termination") == "limit" {
            assert_eq!((record.number("bytes_in"), record.number("bytes_out")), (5.0, 0.0));
        }
    }
}

/// Where all have been answered, the one that has been idle longest makes room.
#[test]
fn the_idlest_answered_flow_goes_where_there_is_no_other() {
    let backend = choosy();
    let yaml = one_udp_listener("limits: { flows: 3 }", &[&backend], "");
    let pointsman = Pointsman::start(&format!("workers: 1\n{yaml}"));
    let edge = pointsman.address("edge");
    let clients: Vec<_> = (0..4).map(|_| UdpClient::to(&edge)).collect();
    for index in [0, 1, 2, 0, 2, 3] {
        clients[index].ask("ask");
    }
    let records = pointsman.access_log(1);
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].text("client"), clients[1].local());
    assert_eq!(records[0].text("termination"), "limit");
}

/// The limit is of all workers together.
#[test]
fn the_limit_holds_over_all_workers() {
    let backend = UdpBackend::sink();
    let yaml = one_udp_listener("limits: { flows: 30 }", &[&backend], "");
    let pointsman = Pointsman::start(&format!("workers: 3\n{yaml}"));
    let edge = pointsman.address("edge");
    let names = pointsman.metrics().names();
    let mut kept = Vec::new();
    for round in 0..20 {
        flood(&edge, 20, &mut kept);
        pointsman.wait_received();
        let active = flows(&pointsman.metrics());
        assert!(active <= 30.0 && (round < 2 || active == 30.0), "{active} in round {round}");
    }
    let metrics = pointsman.metrics();
    assert_eq!(total(&metrics), 400.0);
    // No client has a series of its own.
    assert_eq!(metrics.names(), names);
}

/// A limit that a reload has lowered is reached as others come.
#[test]
fn a_lower_limit_is_reached() {
    let backend = choosy();
    let config =
        |flows: usize| one_udp_listener(&format!("limits: {{ flows: {flows} }}"), &[&backend], "");
    let pointsman = Pointsman::start(&format!("workers: 1\n{}", config(50)));
    let edge = pointsman.address("edge");
    let friend = UdpClient::to(&edge);
    let mut kept = Vec::new();
    flood(&edge, 49, &mut kept);
    friend.ask("ask");
    assert_eq!(flows(&pointsman.metrics()), 50.0);
    pointsman.reload(&format!("workers: 1\n{}", config(10))).unwrap();
    assert_eq!(UdpClient::to(&edge).ask("ask"), "ask");
    assert!(flows(&pointsman.metrics()) <= 10.0);
    assert_eq!(friend.ask("ask"), "ask");
    assert_eq!(pointsman.metrics().closed("edge", "limit"), 41.0);
}

/// Both of the process: its connections, and its descriptors.
#[test]
fn beyond_what_the_process_may_have_is_overload() {
    let backend = choosy();
    let yaml = one_udp_listener("", &[&backend], "");
    let pointsman = Pointsman::start(&format!("workers: 1\nmax_connections: 10\n{yaml}"));
    let edge = pointsman.address("edge");
    let (friend, mut kept) = (UdpClient::to(&edge), Vec::new());
    for _ in 0..5 {
        friend.ask("ask");
        flood(&edge, 10, &mut kept);
        pointsman.wait_received();
        assert_eq!(flows(&pointsman.metrics()), 10.0);
    }
    let metrics = pointsman.metrics();
    assert_eq!((total(&metrics), metrics.closed("edge", "overload")), (51.0, 41.0));

    let pointsman = Pointsman::start(&format!("workers: 1\n{yaml}"));
    let edge = pointsman.address("edge");
    let (friend, mut kept) = (UdpClient::to(&edge), Vec::new());
    friend.ask("ask");
    pointsman.limit_descriptors(pointsman.usage_at_rest().descriptors() as u64 + 10);
    for _ in 0..5 {
        flood(&edge, 10, &mut kept);
        pointsman.wait_received();
        friend.ask("ask");
    }
    // The admin server has a descriptor again when a flow makes room for one.
    pointsman.limit_descriptors(10_000);
    let metrics = pointsman.metrics();
    assert_eq!(total(&metrics), 51.0);
    assert!(flows(&metrics) <= 12.0 && metrics.closed("edge", "overload") >= 39.0);
    assert_eq!(pointsman.backend(&backend.address())["state"], "up");
}

/// Listeners of one worker, each with what follows its name, in front of one backend.
fn listeners(all: &[(&str, &str)], top: &str, backend: &UdpBackend) -> Pointsman {
    let mut yaml = format!("workers: 1\n{top}\nlisteners:\n");
    for (name, more) in all {
        yaml +=
            &format!("  {name}: {{ bind: \"127.0.0.1:0\", protocol: udp, pool: pool{more} }}\n");
    }
    Pointsman::start(&format!(
        "{yaml}pools: {{ pool: {{ backends: [\"{}\"] }} }}\n",
        backend.address()
    ))
}

/// What a flood at one listener has taken, another gets: the unanswered of the flood go.
#[test]
fn a_flood_at_one_listener_leaves_room_at_another() {
    let backend = choosy();
    let all = [("edge", ""), ("flooded", "")];
    let pointsman = listeners(&all, "max_connections: 10", &backend);
    let (edge, flooded) = (pointsman.address("edge"), pointsman.address("flooded"));
    let mut kept = Vec::new();
    flood(&flooded, 30, &mut kept);
    pointsman.wait_received();
    assert_eq!(pointsman.metrics().active("flooded"), 10.0);
    let friends: Vec<_> = (0..5).map(|_| UdpClient::to(&edge)).collect();
    for round in 0..5 {
        let question = format!("ask {round}");
        friends.iter().for_each(|client| assert_eq!(client.ask(&question), question));
        flood(&flooded, 30, &mut kept);
        pointsman.wait_received();
    }
    let metrics = pointsman.metrics();
    assert_eq!((total(&metrics), flows(&metrics)), (5.0, 5.0));
    assert_eq!((metrics.active("flooded"), metrics.closed("flooded", "overload")), (5.0, 175.0));
}

/// Flows that are never answered stay where a fuller listener's, which all are, want their places.
#[test]
fn a_full_listener_takes_no_room_of_a_quiet_one() {
    let backend = choosy();
    let all = [("quiet", ""), ("busy", "")];
    let pointsman = listeners(&all, "max_connections: 10", &backend);
    let (quiet, busy) = (pointsman.address("quiet"), pointsman.address("busy"));
    let tellers: Vec<_> = (0..3).map(|_| UdpClient::to(&quiet)).collect();
    let mut askers = Vec::new();
    for round in 0..10 {
        tellers.iter().for_each(|client| client.send("tell"));
        for _ in 0..5 {
            let asker = UdpClient::to(&busy);
            let question = format!("ask {round}");
            assert_eq!(asker.ask(&question), question);
            askers.push(asker);
        }
    }
    pointsman.wait_received();
    let metrics = pointsman.metrics();
    assert_eq!((metrics.active("quiet"), metrics.closed("quiet", "overload")), (3.0, 0.0));
    assert_eq!((metrics.active("busy"), metrics.closed("busy", "overload")), (7.0, 43.0));
}

/// The same of descriptors, which flows that expect no answer have none of.
#[test]
fn a_flood_at_one_listener_leaves_descriptors_to_another() {
    let backend = choosy();
    let all = [("edge", ""), ("flooded", ""), ("silent", ", udp: { responses: 0 }")];
    let pointsman = listeners(&all, "", &backend);
    let [edge, flooded, silent] = all.map(|(name, _)| pointsman.address(name));
    let mut kept = Vec::new();
    flood(&silent, 50, &mut kept);
    pointsman.wait_received();
    pointsman.limit_descriptors(pointsman.usage_at_rest().descriptors() as u64 + 10);
    flood(&flooded, 20, &mut kept);
    pointsman.wait_received();
    let friends: Vec<_> = (0..5).map(|_| UdpClient::to(&edge)).collect();
    for round in 0..5 {
        let question = format!("ask {round}");
        friends.iter().for_each(|client| assert_eq!(client.ask(&question), question));
        flood(&flooded, 20, &mut kept);
        pointsman.wait_received();
    }
    pointsman.limit_descriptors(10_000);
    let metrics = pointsman.metrics();
    assert_eq!((total(&metrics), flows(&metrics)), (5.0, 5.0));
    assert_eq!((metrics.active("silent"), metrics.closed("silent", "overload")), (50.0, 0.0));
    let ended = metrics.closed("flooded", "overload");
    assert!(ended >= 110.0 && ended + metrics.active("flooded") == 120.0, "{ended}");
}

/// Where all have been answered, the fullest listener makes room by its idlest.
#[test]
fn an_answered_flow_of_the_fullest_listener_goes_where_there_is_no_other() {
    let backend = choosy();
    let pointsman = listeners(&[("edge", ""), ("other", "")], "max_connections: 4", &backend);
    let (edge, other) = (pointsman.address("edge"), pointsman.address("other"));
    let first = UdpClient::to(&edge);
    first.ask("ask");
    let others: Vec<_> = (0..3).map(|_| UdpClient::to(&other)).collect();
    others.iter().chain(&others[..1]).for_each(|client| assert_eq!(client.ask("ask"), "ask"));
    let second = UdpClient::to(&edge);
    second.ask("ask");
    let records = pointsman.access_log(1);
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].text("client"), others[1].local());
    assert_eq!(records[0].text("termination"), "overload");
    first.ask("ask on");
    assert_eq!((total(&pointsman.metrics()), flows(&pointsman.metrics())), (2.0, 2.0));
}

/// However many flows there are, connections find places: an eighth of all.
#[test]
fn flows_leave_places_to_connections() {
    let (backend, echo) = (choosy(), Backend::echo());
    let pointsman = Pointsman::start(&format!(
        "workers: 1\n\
         max_connections: 16\n\
         listeners:\n\
         \x20 edge: {{ bind: \"127.0.0.1:0\", protocol: udp, pool: flows }}\n\
         \x20 tcp: {{ bind: \"127.0.0.1:0\", pool: sessions }}\n\
         pools:\n\
         \x20 flows: {{ backends: [\"{}\"] }}\n\
         \x20 sessions: {{ backends: [\"{}\"], health: off }}\n",
        backend.address(),
        echo.address()
    ));
    let (edge, mut kept) = (pointsman.address("edge"), Vec::new());
    flood(&edge, 30, &mut kept);
    pointsman.wait_received();
    let metrics = pointsman.metrics();
    assert_eq!((flows(&metrics), metrics.closed("edge", "overload")), (14.0, 16.0));
    let mut sessions = [(); 2].map(|()| pointsman.connect("tcp"));
    for session in &mut sessions {
        session.send(100);
        session.receive(100);
    }
    // The bound of all is what it was.
    Stream::expect_turned_away(&pointsman.address("tcp"));
}

/// A new flow is let in where only answered ones have descriptors: the idlest of them goes.
#[test]
fn an_answered_flow_gives_up_its_descriptor() {
    let backend = choosy();
    let yaml = one_udp_listener("", &[&backend], "");
    let pointsman = Pointsman::start(&format!("workers: 1\n{yaml}"));
    let edge = pointsman.address("edge");
    pointsman.limit_descriptors(pointsman.usage_at_rest().descriptors() as u64 + 5);
    let clients: Vec<_> = (0..10).map(|_| UdpClient::to(&edge)).collect();
    clients.iter().for_each(|client| assert_eq!(client.ask("ask"), "ask"));
    pointsman.limit_descriptors(10_000);
    let metrics = pointsman.metrics();
    let gone = metrics.closed("edge", "overload");
    assert!(gone >= 4.0 && gone + flows(&metrics) == 10.0, "{gone}");
    for (record, client) in pointsman.access_log(gone as usize).iter().zip(&clients) {
        assert_eq!(record.text("client"), client.local());
    }
}

#[test]
fn flows_of_one_source_are_limited() {
    let backend = choosy();
    let config = |idle: &str| {
        let listener =
            format!("limits: {{ per_source: {{ flows: 5 }} }}, timeouts: {{ idle: {idle} }}");
        format!("workers: 2\n{}", one_udp_listener(&listener, &[&backend], ""))
    };
    let pointsman = Pointsman::start(&config("1h"));
    let edge = pointsman.address("edge");
    let from = |ip: &str| UdpClient::from(&format!("{ip}:0"), &edge);
    let first: Vec<_> = (0..5).map(|_| from("127.0.0.1")).collect();
    first.iter().for_each(|client| assert_eq!(client.ask("ask"), "ask"));
    let beyond: Vec<_> = (0..10).map(|_| from("127.0.0.1")).collect();
    beyond.iter().for_each(|client| client.send("ask too"));
    pointsman.expect_count(10.0, |metrics| metrics.closed("edge", "limit"));
    pointsman.expect_count(10.0, |metrics| dropped(metrics, "flow"));
    assert!(beyond.iter().all(|client| client.try_receive(Duration::from_millis(1)).is_none()));
    // Others do not notice, nor those that have their flows.
    let others: Vec<_> = (0..5).map(|_| from("127.0.0.2")).collect();
    others.iter().chain(&first).for_each(|client| assert_eq!(client.ask("ask on"), "ask on"));
    pointsman.reload(&config("300ms")).unwrap();
    pointsman.wait_idle();
    beyond[..5].iter().for_each(|client| assert_eq!(client.ask("ask at last"), "ask at last"));
    let refused = |r: &&crate::harness::Record| r.text("termination") == "limit";
    for record in pointsman.access_log(20).iter().filter(refused) {
        assert_eq!((record.text("pool"), record.text("backend")), ("-", "-"));
    }
}

#[test]
fn datagrams_of_one_source_are_limited() {
    let backend = UdpBackend::mirror();
    let listener = "limits: { per_source: { rate: 50/s } }";
    let yaml = one_udp_listener(listener, &[&backend], "");
    let pointsman = Pointsman::start(&format!("workers: 2\n{yaml}"));
    let edge = pointsman.address("edge");
    let from = |ip: &str| UdpClient::from(&format!("{ip}:0"), &edge);
    let (greedy, modest) = (from("127.0.0.1"), from("127.0.0.2"));
    let since = std::time::Instant::now();
    for round in 0..10 {
        (0..100).for_each(|_| greedy.send("x"));
        modest.ask(&round.to_string());
        pass(Duration::from_millis(20));
    }
    pointsman.wait_received();
    let metrics = pointsman.metrics();
    let passed = 1000.0 - dropped(&metrics, "rate");
    let most = 50.0 + 50.0 * since.elapsed().as_secs_f64();
    assert!(passed >= 40.0 && passed <= most + 1.0, "{passed} of at most {most}");
    assert_eq!(
        metrics.value("pointsman_udp_datagrams_total", &[EDGE, ("direction", "in")]),
        passed + 10.0
    );
    // Ended flows come back by what they may send.
    assert_eq!(flows(&metrics), 2.0);
}

/// A flood is sampled in the log, with a count of the rest; the counter has all.
#[test]
fn a_flood_of_refused_flows_is_sampled() {
    const FLOOD: usize = 2000;
    let backend = UdpBackend::mirror();
    let listener = "limits: { per_source: { flows: 1 } }, udp: { receive_buffer: 4MiB }, \
                    timeouts: { idle: 300ms }";
    let yaml = one_udp_listener(listener, &[&backend], "");
    let pointsman = Pointsman::start(&format!("workers: 1\n{yaml}"));
    let edge = pointsman.address("edge");
    let only = UdpClient::to(&edge);
    only.ask("x");
    for _ in 0..FLOOD / 100 {
        (0..100).for_each(|_| UdpClient::to(&edge).send("y"));
        only.ask("x");
    }
    pointsman.wait_received();
    assert_eq!(pointsman.metrics().closed("edge", "limit"), FLOOD as f64);
    pointsman.wait_for_log("left_out");
    pointsman.wait_idle();
    let records = pointsman.stop();
    assert!((100..FLOOD).contains(&records.len()), "{}", records.len());
}
