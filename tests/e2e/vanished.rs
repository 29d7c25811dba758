//! A peer that vanishes without FIN or RST. It lives in a network namespace of its own, whose
//! way back is cut. Needs root, as the namespace does.

use std::os::fd::AsFd;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::harness::{
    Backend, Pointsman, Side, Stream, expect_record, one_listener, wait_for, wait_until,
};

/// A network namespace at the other end of a wire, gone when dropped.
#[derive(Debug)]
struct Elsewhere {
    name: String,
    /// Our address on the wire.
    here: String,
    /// Its address.
    there: String,
}

impl Elsewhere {
    fn new(number: u32) -> Self {
        let id = std::process::id();
        let name = format!("pm{id}-{number}");
        // 198.18.0.0/15 is for benchmarks: nobody's network. Another process may have drawn the
        // same, so the draw is repeated until the address is free.
        let mut rng = fastrand::Rng::new();
        ip(&format!("netns add {name}"));
        let wire = format!("pm{}{number}", id % 1_000_000);
        ip(&format!("link add {wire} type veth peer name far netns {name}"));
        let (here, there) = wait_for("a free network", || {
            let network = format!("198.{}.{}", rng.u8(18..=19), rng.u8(..));
            let taken = String::from_utf8(output("ip", "-o addr show").stdout).unwrap();
            (!taken.contains(&network)).then(|| (format!("{network}.1"), format!("{network}.2")))
        });
        ip(&format!("addr add {here}/30 dev {wire}"));
        ip(&format!("link set {wire} up"));
        ip(&format!("-n {name} addr add {there}/30 dev far"));
        ip(&format!("-n {name} link set far up"));
        Elsewhere { name, here, there }
    }

    /// Runs in the namespace; sockets made there stay there.
    fn within<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        let namespace = std::fs::File::open(format!("/run/netns/{}", self.name)).unwrap();
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                let kind = Some(rustix::thread::LinkNameSpaceType::Network);
                rustix::thread::move_into_link_name_space(namespace.as_fd(), kind).unwrap();
                act()
            });
            thread.join().unwrap()
        })
    }

    /// From now on nothing comes back from there, not even an error.
    fn cut(&self) {
        ip(&format!("-n {} route add blackhole {}/32", self.name, self.here));
        ip(&format!("-n {} route flush cache", self.name));
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        // Takes both ends of the wire along.
        output("ip", &format!("netns del {}", self.name));
    }
}

fn output(program: &str, arguments: &str) -> std::process::Output {
    Command::new(program).args(arguments.split(' ')).output().expect("iproute2 is installed")
}

fn ip(arguments: &str) {
    let done = output("ip", arguments);
    assert!(done.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&done.stderr));
}

/// A session one of whose sides is elsewhere: that side, the other one, and the rest.
fn session(side: Side, elsewhere: &Elsewhere, timeouts: &str) -> (Stream, Stream, Pointsman) {
    let (here, there) = (format!("{}:0", elsewhere.here), format!("{}:0", elsewhere.there));
    let backend = match side {
        Side::Client => Backend::manual(),
        Side::Backend => elsewhere.within(|| Backend::listening(&there)),
    };
    let yaml = one_listener(timeouts, &[&backend.address()], "").replace("127.0.0.1:0", &here);
    let pointsman = Pointsman::start(&yaml);
    let address = pointsman.address("edge");
    let client = match side {
        Side::Client => elsewhere.within(|| Stream::connect(&address)),
        Side::Backend => Stream::connect(&address),
    };
    let mut ends = [client, backend.accept()];
    ends[0].send(10);
    ends[1].receive(10);
    ends[1].send(10);
    ends[0].receive(10);
    let [client, server] = ends;
    match side {
        Side::Client => (client, server, pointsman),
        Side::Backend => (server, client, pointsman),
    }
}

#[test]
fn unanswered_data_ends_the_session_after_user_timeout() {
    for (number, side) in (0..).zip(Side::BOTH) {
        let elsewhere = Elsewhere::new(number);
        let timeouts = "timeouts: { user_timeout: 1s, keepalive: off }";
        let (vanishing, mut other, pointsman) = session(side, &elsewhere, timeouts);
        elsewhere.cut();
        let since = Instant::now();
        other.send(10_000);
        wait_until("the reset to arrive", || other.is_broken());
        let took = since.elapsed();
        assert!(took > Duration::from_millis(900) && took < Duration::from_secs(6), "{took:?}");
        other.expect_reset();
        drop((other, vanishing));
        expect_record(&pointsman, &side.causes("reset"));
    }
}

#[test]
fn keepalive_finds_out_without_data() {
    for (number, side) in (2..).zip(Side::BOTH) {
        let elsewhere = Elsewhere::new(number);
        let timeouts = "timeouts: { user_timeout: 2s, keepalive: 1s }";
        let (vanishing, mut other, pointsman) = session(side, &elsewhere, timeouts);
        elsewhere.cut();
        let since = Instant::now();
        wait_until("the reset to arrive", || other.is_broken());
        let took = since.elapsed();
        assert!(took > Duration::from_secs(1) && took < Duration::from_secs(10), "{took:?}");
        other.expect_reset();
        drop((other, vanishing));
        expect_record(&pointsman, &side.causes("reset"));
    }
}

/// The timers of a socket as `ss` shows them.
fn timers(from: &str, to: &str) -> String {
    let done = output("ss", &format!("-tonH src {from} dst {to}"));
    String::from_utf8(done.stdout).unwrap()
}

/// Seconds until the next keepalive probe of a socket.
fn keepalive_in(from: &str, to: &str) -> u32 {
    wait_for(&format!("a keepalive timer from {from} to {to}"), || {
        let shown = timers(from, to);
        let timer = shown.split_once("timer:(keepalive,")?.1;
        // `29sec`; below a minute or ten seconds it has other forms.
        timer.split_once("sec")?.0.parse().ok()
    })
}

#[test]
fn keepalive_runs_on_both_sides() {
    let session = crate::harness::Session::open("timeouts: { keepalive: 40s }");
    let (edge, client) = (session.pointsman.address("edge"), session.client.local());
    let (ours, backend) = (session.server.remote().to_string(), session.backend.address());
    for (from, to) in [(&edge, &client), (&ours, &backend)] {
        let seconds = keepalive_in(from, to);
        assert!((20..=40).contains(&seconds), "{from} {to}: {seconds}");
    }
    let session = crate::harness::Session::open("timeouts: { keepalive: off }");
    let (edge, client) = (session.pointsman.address("edge"), session.client.local());
    assert!(timers(&edge, &client).contains(&client), "the socket is there");
    assert!(!timers(&edge, &client).contains("keepalive"));
}
