//! Network namespaces, and a network of three of them.

use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::harness::Pointsman;

/// Where iproute2 keeps namespaces.
const NAMESPACES: &str = "/run/netns";

/// A network namespace with loopback, removed when dropped.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// A new one.
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let root = rustix::process::geteuid().is_root();
        assert!(root, "network namespaces need root: run this test as root, or leave it out");
        remove_left_over();
        let name = format!("{}{}", prefix(std::process::id()), COUNT.fetch_add(1, Relaxed));
        ip(&["netns", "add", &name]);
        let namespace = Namespace { name };
        namespace.ip("link set lo up");
        namespace
    }

    /// Starts pointsman in it, and waits until it is ready.
    pub fn start(&self, yaml: &str) -> Pointsman {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, env!("CARGO_BIN_EXE_pointsman")]);
        let mut pointsman = Pointsman::spawn_by(command, yaml);
        pointsman.wait_ready();
        pointsman
    }

    /// Runs `ip` in it.
    pub fn ip(&self, arguments: &str) {
        let mut all = vec!["-n", &*self.name];
        all.extend(arguments.split(' '));
        ip(&all);
    }

    /// Does something in it, on a thread of its own. Sockets made there stay there.
    pub fn within<T: Send>(&self, action: impl FnOnce() -> T + Send) -> T {
        let enter = || {
            let file = fs::File::open(Path::new(NAMESPACES).join(&self.name)).unwrap();
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            action()
        };
        std::thread::scope(|scope| {
            let done = scope.spawn(enter).join();
            done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// A counter of its own in `/proc/net/snmp` or `snmp6`, such as `Ip FragCreates` and
    /// `Ip6FragCreates`.
    pub fn counter(&self, name: &str) -> u64 {
        let read =
            |file| fs::read_to_string(Path::new("/proc/thread-self/net").join(file)).unwrap();
        let (table, wide) = self.within(|| (read("snmp"), read("snmp6")));
        let value = match name.split_once(' ') {
            Some((row, column)) => {
                let mut rows =
                    table.lines().filter_map(|line| line.strip_prefix(&*format!("{row}: ")));
                let mut columns = rows.next().unwrap().split(' ');
                rows.next().unwrap().split(' ').nth(columns.position(|c| c == column).unwrap())
            }
            None => wide.lines().find_map(|line| line.strip_prefix(name)).map(str::trim),
        };
        value.unwrap().parse().unwrap()
    }

    /// Sets a kernel parameter of it, such as `net/ipv4/ip_forward`.
    pub fn set(&self, parameter: &str, value: &str) {
        self.within(|| fs::write(Path::new("/proc/sys").join(parameter), value).unwrap());
    }

    /// A cable from `device` in here to `eth0` in another one, with addresses at both ends.
    pub fn cable(&self, device: &str, address: &str, other: &Namespace, other_address: &str) {
        let other_name = &other.name;
        self.ip(&format!("link add {device} type veth peer name eth0 netns {other_name}"));
        for (end, device, address) in [(self, device, address), (other, "eth0", other_address)] {
            end.ip(&format!("address add {address} dev {device}"));
            end.ip(&format!("link set {device} up"));
        }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let removed = Command::new("ip").args(["netns", "delete", &self.name]).status();
        if !std::thread::panicking() {
            assert!(removed.unwrap().success(), "{} was not removed", self.name);
        }
    }
}

/// A client and a backend that reach each other only through the host in the middle.
#[derive(Debug)]
pub struct Network {
    /// Has `eth0`, 10.1.0.2.
    pub client: Namespace,
    /// Has `left` to the client, 10.1.0.1, and `right` to the backend, 10.2.0.1.
    pub middle: Namespace,
    /// Has `eth0`, 10.2.0.2.
    pub backend: Namespace,
}

impl Network {
    /// Everything is up.
    pub fn new() -> Self {
        let [client, middle, backend] = [(); 3].map(|()| Namespace::new());
        middle.cable("left", "10.1.0.1/24", &client, "10.1.0.2/24");
        middle.cable("right", "10.2.0.1/24", &backend, "10.2.0.2/24");
        Network { client, middle, backend }
    }

    /// The same with IPv6 as well: the last number of an address is the same, 10.1.0.2 is fd01::2.
    pub fn of_both_families() -> Self {
        let network = Network::new();
        for (end, address, device) in [
            (&network.client, "fd01::2", "eth0"),
            (&network.middle, "fd01::1", "left"),
            (&network.middle, "fd02::1", "right"),
            (&network.backend, "fd02::2", "eth0"),
        ] {
            end.ip(&format!("address add {address}/64 dev {device} nodad"));
        }
        network
    }
}

fn ip(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().expect("iproute2 is installed");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {}: {error}", arguments.join(" "));
}

/// Names tell whose they are.
fn prefix(process: u32) -> String {
    format!("pointsman-{process}-")
}

/// Removes what tests have left behind that were killed.
fn remove_left_over() {
    let Ok(entries) = fs::read_dir(NAMESPACES) else { return };
    for name in entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()) {
        let process = name.strip_prefix("pointsman-").and_then(|rest| rest.split('-').next());
        let gone = |id: &str| !Path::new("/proc").join(id).exists();
        if process.is_some_and(gone) {
            // Another test may be quicker.
            let _removed = Command::new("ip").args(["netns", "delete", &name]).output();
        }
    }
}
