//! Real programs that speak UDP, at both ends.

use std::fs;
use std::process::{Child, Command, Stdio};

use crate::harness::{
    HeldPort, Pointsman, UdpBackend, finish, finish_reading, fresh_directory, one_udp_listener,
    wait_until,
};

/// dnsmasq with records of its own, for TCP and UDP at one port.
struct Dnsmasq {
    directory: std::path::PathBuf,
    child: Child,
    port: HeldPort,
}

impl Dnsmasq {
    fn start(number: usize) -> Self {
        let directory = fresh_directory();
        let port = HeldPort::of_both("127.0.0.1");
        let number_of_port = port.address().port();
        let texts: Vec<_> = (0..12).map(|index| format!("{index:0>200}")).collect();
        let config = format!(
            "port={number_of_port}\nlisten-address=127.0.0.1\nbind-interfaces\nno-resolv\nno-hosts\n\
             edns-packet-max=4096\nuser=root\n\
             address=/a.example/192.0.2.{number}\n"
        );
        fs::write(directory.join("dnsmasq.conf"), config).unwrap();
        let child = Command::new("dnsmasq")
            .arg(format!("--conf-file={}", directory.join("dnsmasq.conf").display()))
            .args(["--keep-in-foreground", "--pid-file"])
            // Too long for a line of its file.
            .arg(format!("--txt-record=large.example,{}", texts.join(",")))
            .stdin(Stdio::null())
            .stderr(fs::File::create(directory.join("log")).unwrap())
            .spawn()
            .unwrap();
        wait_until("dnsmasq", || std::net::TcpStream::connect(port.address()).is_ok());
        Dnsmasq { directory, child, port }
    }
}

impl Drop for Dnsmasq {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
        if std::thread::panicking() {
            let log = fs::read_to_string(self.directory.join("log"));
            eprintln!("--- dnsmasq ---\n{}---", log.unwrap_or_default());
        }
        let _kept = fs::remove_dir_all(&self.directory);
    }
}

fn dig(port: &str, arguments: &[&str]) -> String {
    let fixed = ["@127.0.0.1", "-p", port, "+tries=1", "+time=5"];
    finish(Command::new("dig").args(fixed).args(arguments)).success()
}

#[test]
fn dns_by_udp_and_tcp() {
    const QUERIES: usize = 200;
    let servers = [1, 2].map(Dnsmasq::start);
    let held = HeldPort::of_both("127.0.0.1");
    let port = held.address().port();
    let pool = format!(
        "balance: round_robin, backends: [\"{}\", \"{}\"]",
        servers[0].port.address(),
        servers[1].port.address()
    );
    let pointsman = Pointsman::start(&format!(
        "workers: 2\nlisteners:\n  \
         udp: {{ bind: \"127.0.0.1:{port}\", protocol: udp, udp: {{ per_packet: true }}, \
         pool: udp }}\n  tcp: {{ bind: \"127.0.0.1:{port}\", pool: tcp }}\n\
         pools:\n  udp: {{ {pool}, health: {{ type: udp, \
         send: {{ hex: \"1234 0100 0001 0000 0000 0000 01 61 07 6578616d706c65 00 0001 0001\" }}, \
         expect: {{ hex: \"1234 85\" }} }} }}\n  tcp: {{ {pool} }}\n"
    ));
    for server in &servers {
        let path = format!("/api/v1/pools/udp/backends/{}", server.port.address());
        assert!(pointsman.admin("GET", &path).1.contains("\"up\""), "{path}");
    }
    let port = port.to_string();
    let file = pointsman.directory().join("queries");
    let queries: Vec<_> = (0..QUERIES).map(|index| format!("{index}.a.example A")).collect();
    fs::write(&file, queries.join("\n") + "\n").unwrap();
    let answers = dig(&port, &["+short", "-f", file.to_str().unwrap()]);
    let of = |number: usize| {
        let address = format!("192.0.2.{number}");
        answers.lines().filter(|line| *line == address).count()
    };
    // Both servers have their share.
    assert_eq!((of(1), of(2)), (QUERIES / 2, QUERIES / 2), "{answers}");
    let before = pointsman.access_log(QUERIES).len();
    assert_eq!(before, QUERIES);

    // Larger than a packet: in fragments, or again by TCP.
    let large = ["large.example", "TXT", "+short"];
    for (more, protocol) in [(["+bufsize=4096", "+ignore"], "udp"), (["+tcp", "+ignore"], "tcp")] {
        let answer = dig(&port, &[&large[..], &more[..]].concat());
        assert!(answer.len() > 12 * 200, "{protocol}: {answer}");
    }
    let small = dig(&port, &["large.example", "TXT", "+noedns", "+ignore"]);
    assert!(small.contains("flags: qr aa tc"), "{small}");
    let answer = dig(&port, &["large.example", "TXT", "+short", "+noedns"]);
    assert!(answer.len() > 12 * 200, "by TCP after all: {answer}");
    let metrics = pointsman.wait_idle();
    assert_eq!(metrics.closed("udp", "responses"), QUERIES as f64 + 3.0);
    assert_eq!(metrics.sum("pointsman_udp_dropped_total", ("listener", "udp")), 0.0);
    pointsman.stop();
}

#[test]
fn lines_of_syslog() {
    let sink = UdpBackend::sink();
    let listener = "udp: { responses: 0 }, timeouts: { idle: 1h }";
    let pointsman = Pointsman::start(&one_udp_listener(listener, &[&sink], ""));
    let edge = pointsman.address("edge");
    let (_, port) = edge.rsplit_once(':').unwrap();
    let lines: Vec<_> = (0..50).map(|index| format!("line {index} of a log")).collect();
    let file = pointsman.directory().join("lines");
    fs::write(&file, lines.join("\n") + "\n").unwrap();
    let arguments = ["-n", "127.0.0.1", "-P", port, "-d", "-t", "test"];
    finish_reading(Command::new("logger").args(arguments), &file).success();
    wait_until("all lines", || sink.count() == lines.len());
    for (received, line) in sink.received().iter().zip(&lines) {
        let got = String::from_utf8_lossy(&received.bytes);
        assert!(got.starts_with('<') && got.ends_with(line.as_str()), "{got}");
    }
    let metrics = pointsman.metrics();
    assert_eq!(metrics.value("pointsman_udp_flows_total", &[("listener", "edge")]), 1.0);
}
