//! Floods of datagrams that get nowhere. One from a forged address is enough for a record, so that
//! the access log has some of each kind, and says how many it has left out.

use crate::harness::hello::Hello;
use crate::harness::initial::{Initial, V1, crypto};
use crate::harness::{Pointsman, UdpBackend, UdpClient, wait_until};

/// Datagrams of each kind.
const FLOOD: usize = 1500;

/// A flow that is refused in one way: by the listener of that name.
struct Kind {
    termination: &'static str,
    /// Of the listener.
    routes: &'static str,
    datagram: Vec<u8>,
    /// As what its datagrams are counted.
    dropped: &'static str,
}

fn kinds() -> Vec<Kind> {
    let hello = Hello::to("shop.example.com").message();
    let mut broken = Initial::new(V1).datagram(&crypto(0, &hello));
    *broken.last_mut().unwrap() ^= 1;
    // Says at once that it is longer than may be.
    let mut long = vec![1, 1, 0, 0];
    long.resize(1000, 3);
    let long = Initial::new(V1).datagram(&crypto(0, &long));
    let kind = |termination, routes, datagram: &[u8], dropped| Kind {
        termination,
        routes,
        datagram: datagram.to_vec(),
        dropped,
    };
    let names = "{ sni: shop.example.com, pool: pool }";
    vec![
        kind("no_route", "{ source: 192.0.2.0/24, pool: pool }", b"x", "flow"),
        kind("rejected", "{ action: reject }", b"x", "flow"),
        kind("no_backend", "{ pool: none }", b"x", "flow"),
        kind("connect_failed", "{ pool: nowhere }", b"x", "flow"),
        kind("preread_invalid", names, &broken, "preread"),
        kind("preread_too_large", names, &long, "preread"),
    ]
}

#[test]
fn refusals_of_every_kind_are_sampled_and_none_hides_another() {
    let backend = UdpBackend::sink();
    let kinds = kinds();
    let mut yaml = "workers: 1\nlisteners:\n".to_owned();
    for Kind { termination, routes, .. } in &kinds {
        yaml += &format!(
            "  {termination}: {{ bind: \"127.0.0.1:0\", protocol: udp, routes: [{routes}], \
             preread: {{ max_bytes: 4KiB }}, udp: {{ receive_buffer: 4MiB }} }}\n"
        );
    }
    let address = backend.address();
    yaml += &format!(
        "pools:
  pool: {{ backends: [\"{address}\"] }}
  none: {{ backends: [{{ address: \"{address}\", weight: 0 }}] }}
  nowhere: {{ backends: [\"255.255.255.255:9\"], outlier: off }}
"
    );
    let pointsman = Pointsman::start(&yaml);
    for Kind { termination, datagram, dropped, .. } in &kinds {
        // What comes from one in a row would be one flow.
        let clients = [(); 2].map(|()| UdpClient::to(&pointsman.address(termination)));
        for _ in 0..FLOOD / 100 {
            (0..100).for_each(|number| clients[number % 2].send(datagram));
            pointsman.wait_received();
        }
        let labels = [("listener", *termination), ("reason", *dropped)];
        wait_until(&format!("all to be {termination}"), || {
            let metrics = pointsman.metrics();
            let dropped = metrics.value("pointsman_udp_dropped_total", &labels);
            [metrics.closed(termination, termination), dropped] == [FLOOD as f64; 2]
        });
    }
    for Kind { termination, .. } in &kinds {
        let written = || {
            let records = pointsman.access_log(0);
            records.iter().filter(|record| record.text("termination") == *termination).count()
        };
        wait_until(&format!("{termination} to be told"), || {
            written() + pointsman.left_out(termination) == FLOOD
        });
        assert!((100..FLOOD).contains(&written()), "{termination}: {}", written());
    }
    assert_eq!(backend.count(), 0);
    pointsman.stop();
}
