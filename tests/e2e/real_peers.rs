//! nginx, HAProxy, curl and openssl at both ends: what is in the way must not show.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::harness::{Haproxy, Nginx, Pointsman, certify, finish, one_listener, wait_until};

/// Runs curl, which must succeed; what it prints.
fn curl(arguments: &[&str]) -> String {
    finish(Command::new("curl").args(["-sSf", "--max-time", "20"]).args(arguments)).success()
}

fn openssl(arguments: &[&str]) -> String {
    finish(Command::new("openssl").args(arguments)).success()
}

/// Holds two files to be the same.
fn expect_same(one: impl AsRef<Path>, other: impl AsRef<Path>) {
    let same = fs::read(&one).unwrap() == fs::read(&other).unwrap();
    assert!(same, "{} differs from {}", one.as_ref().display(), other.as_ref().display());
}

/// nginx that ends TLS and says what it saw.
fn tls_nginx() -> Nginx {
    let server = "listen unix:DIR/socket ssl http2; ssl_certificate DIR/cert.pem;\n\
                  ssl_certificate_key DIR/cert.key; ssl_protocols TLSv1.2 TLSv1.3;\n\
                  location / { return 200 \"$ssl_protocol $ssl_server_name $server_protocol\"; }\n\
                  location /large { root DIR; }";
    Nginx::serving(server, |directory| {
        certify(directory, "cert", "IP:127.0.0.1,DNS:*.example.com");
        write_large(directory, 8 << 20);
    })
}

/// `large`, so many bytes in which no block of a power of two comes twice.
fn write_large(directory: &Path, bytes: usize) {
    let mut block = vec![0; 1_048_573];
    fastrand::Rng::with_seed(7).fill(&mut block);
    let mut content = block.repeat(bytes.div_ceil(block.len()));
    content.truncate(bytes);
    fs::write(directory.join("large"), content).unwrap();
}

/// Requests of one curl share a connection, and so a backend; those of several take turns.
#[test]
fn keep_alive_over_two_nginx() {
    let [one, two] = ["one", "two"].map(|name| Nginx::start(&format!("return 200 \"{name} \";")));
    let pool = "balance: round_robin";
    let pointsman = Pointsman::start(&one_listener("", &[&one.address(), &two.address()], pool));
    let url = format!("http://{}/", pointsman.address("edge"));
    let write = ["-w", "%{num_connects} "];
    for turn in 0..4 {
        let answer = curl(&[&write[..], &[&url, &url, &url]].concat());
        let name = ["one", "two"][turn % 2];
        let other = ["two", "one"][turn % 2];
        let expected = |name| format!("{name} 1 {name} 0 {name} 0 ");
        // Which of the two is first depends on their addresses.
        assert!(answer == expected(name) || answer == expected(other), "{answer}");
        // Records come in the order in which sessions end.
        pointsman.access_log(turn + 1);
    }
    let backends: Vec<_> =
        pointsman.access_log(4).iter().map(|record| record.text("backend").to_owned()).collect();
    assert_eq!(backends[0], backends[2]);
    assert_eq!(backends[1], backends[3]);
    assert_ne!(backends[0], backends[1]);
    pointsman.stop();
}

#[test]
fn large_files_both_ways() {
    let server = "listen unix:DIR/socket; root DIR; location / { }\n\
                  location /put/ { dav_methods PUT; create_full_put_path on; }";
    let nginx = Nginx::serving(server, |directory| write_large(directory, 64 << 20));
    let pointsman = Pointsman::start(&one_listener("", &[&nginx.address()], ""));
    let url = format!("http://{}", pointsman.address("edge"));
    let large = nginx.directory().join("large");
    let file = |name| pointsman.directory().join(name).to_str().unwrap().to_owned();

    curl(&["-o", &file("got"), &format!("{url}/large")]);
    expect_same(file("got"), &large);
    curl(&["-T", &file("got"), "-H", "Expect:", &format!("{url}/put/large")]);
    expect_same(nginx.directory().join("put/large"), &large);
    // In pieces, over one connection.
    let ranges = ["-r", "0-9999999", "-o", &file("a"), "--next", "-sSf", "-r", "10000000-"]
        .map(str::to_owned);
    let urls = format!("{url}/large");
    let mut arguments: Vec<&str> = ranges.iter().map(String::as_str).collect();
    arguments.insert(4, &urls);
    let rest = file("b");
    arguments.extend(["-o", &rest, &urls]);
    curl(&arguments);
    let whole = [fs::read(file("a")).unwrap(), fs::read(file("b")).unwrap()].concat();
    fs::write(file("whole"), whole).unwrap();
    expect_same(file("whole"), &large);

    let size = 64 << 20;
    let metrics = pointsman.wait_idle();
    let bytes = |direction| {
        let labels = [("listener", "edge"), ("direction", direction)];
        metrics.value("pointsman_bytes_total", &labels) as u64
    };
    assert!((size..size + 10_000).contains(&bytes("in")), "{}", bytes("in"));
    assert!((2 * size..2 * size + 10_000).contains(&bytes("out")), "{}", bytes("out"));
    pointsman.stop();
}

/// TLS goes through untouched: the client verifies the backend's own certificate, and both agree
/// on version, name and protocol as if nobody were in between.
#[test]
fn https_goes_through_untouched() {
    let nginx = tls_nginx();
    let pointsman = Pointsman::start(&one_listener("", &[&nginx.address()], ""));
    let edge = pointsman.address("edge");
    let port = edge.rsplit_once(':').unwrap().1;
    let certificate = nginx.directory().join("cert.pem").to_str().unwrap().to_owned();
    let trust = ["--cacert", &*certificate];
    for (versions, version) in [
        (["--tlsv1.2", "--tls-max", "1.2"], "TLSv1.2"),
        (["--tlsv1.3", "--tls-max", "1.3"], "TLSv1.3"),
    ] {
        for (http, protocol) in [("--http1.1", "HTTP/1.1"), ("--http2", "HTTP/2.0")] {
            let url = format!("https://a.example.com:{port}/");
            let resolve = format!("a.example.com:{port}:127.0.0.1");
            let more = [http, "--resolve", &resolve, &url];
            let answer = curl(&[&trust[..], &versions, &more].concat());
            assert_eq!(answer, format!("{version} a.example.com {protocol}"));
        }
    }
    let answer = curl(&["-k", "--http1.1", &format!("https://{edge}/")]);
    assert_eq!(answer, "TLSv1.3  HTTP/1.1");
    let got = pointsman.directory().join("got");
    curl(&[&trust[..], &["-o", got.to_str().unwrap(), &format!("https://{edge}/large")]].concat());
    expect_same(&got, nginx.directory().join("large"));
    pointsman.stop();
}

#[test]
fn openssl_shakes_hands_with_the_backend() {
    let nginx = tls_nginx();
    let pointsman = Pointsman::start(&one_listener("", &[&nginx.address()], ""));
    let edge = pointsman.address("edge");
    let certificate = nginx.directory().join("cert.pem").to_str().unwrap().to_owned();
    let shown = openssl(&["x509", "-in", &certificate]);
    for (version, name) in [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")] {
        let output = openssl(&[
            "s_client",
            "-connect",
            &edge,
            version,
            "-servername",
            "b.example.com",
            "-alpn",
            "h2,http/1.1",
            "-CAfile",
            &certificate,
            "-verify_hostname",
            "b.example.com",
        ]);
        assert!(output.contains(&format!("New, {name}, Cipher is ")), "{output}");
        assert!(output.contains("ALPN protocol: h2\n"), "{output}");
        assert!(output.contains("Verify return code: 0 (ok)"), "{output}");
        assert!(output.contains(shown.trim()), "the backend's own certificate: {output}");
    }
    pointsman.stop();
}

/// In TCP mode HAProxy is one more relay in the chain, in HTTP mode a server that keeps
/// connections alive; as both it is checked without a complaint.
#[test]
fn haproxy_in_both_modes() {
    let nginx = Nginx::start("return 200 \"behind haproxy \";");
    let server = format!("server nginx unix@{}", nginx.address().trim_start_matches("unix:"));
    let tcp = Haproxy::start(&["mode tcp", &server]);
    let answer = "http-request return status 200 content-type text/plain string \"by-haproxy \"";
    let http = Haproxy::start(&["mode http", answer]);
    let write = ["-w", "%{num_connects} "];
    for (haproxy, answer) in [(&tcp, "behind haproxy "), (&http, "by-haproxy ")] {
        let yaml = one_listener("", &[&haproxy.address()], "");
        let yaml = yaml.replace("health: off", "health: { interval: 50ms }");
        let pointsman = Pointsman::start(&yaml);
        let url = format!("http://{}/", pointsman.address("edge"));
        for _ in 0..3 {
            let got = curl(&[&write[..], &[&url, &url]].concat());
            assert_eq!(got, format!("{answer}1 {answer}0 "));
        }
        let labels = [("pool", "pool"), ("backend", &*haproxy.address()), ("result", "pass")];
        wait_until("ten checks", || {
            pointsman.metrics().value("pointsman_backend_checks_total", &labels) >= 10.0
        });
        let status = &pointsman.status()["pools"]["pool"]["backends"][&*haproxy.address()];
        assert_eq!((&status["state"], &status["failures"]), (&"up".into(), &0.into()));
        for record in pointsman.stop() {
            assert_eq!(record.text("termination"), "client_closed");
        }
    }
    assert_eq!(nginx.errors(), "");
}

/// Checks are connections without a request, of which nginx logs nothing.
#[test]
fn checks_leave_nothing_in_the_log_of_nginx() {
    let nginx = Nginx::start("return 200;");
    let tls = tls_nginx();
    for nginx in [&nginx, &tls] {
        let yaml = one_listener("", &[&nginx.address()], "");
        let yaml = yaml.replace("health: off", "health: { interval: 20ms }");
        let pointsman = Pointsman::start(&yaml);
        let labels = [("pool", "pool"), ("backend", &*nginx.address()), ("result", "pass")];
        wait_until("twenty checks", || {
            pointsman.metrics().value("pointsman_backend_checks_total", &labels) >= 20.0
        });
        pointsman.stop();
        assert_eq!(nginx.errors(), "");
    }
}
