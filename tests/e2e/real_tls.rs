//! TLS servers of several names behind one address: curl, openssl and Chromium reach each by its
//! name, verify its own certificate, resume sessions and send early data as if nobody were between.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::harness::{
    Answer, Haproxy, Nginx, Pointsman, browse, certify, finish, finish_reading, fresh_directory,
    routed,
};

/// Certificates, nginx for `a` and `b`, another one for clients without a name, HAProxy for `c`.
struct Site {
    pointsman: Pointsman,
    _servers: (Nginx, Nginx, Haproxy),
    directory: std::path::PathBuf,
}

const ROUTES: [&str; 5] = [
    "{ sni: [a.example.com, b.example.com], pool: nginx }",
    "{ sni: c.example.com, pool: haproxy }",
    "{ sni: gone.example.com, action: reject }",
    "{ alpn: special, pool: haproxy }",
    "{ pool: bare }",
];

/// A server of nginx that tells who it is and what it saw.
fn server(name: &str, certificates: &Path) -> String {
    let dir = certificates.display();
    format!(
        "listen unix:DIR/socket ssl http2; server_name {name}.example.com;\n\
         ssl_certificate {dir}/{name}.pem; ssl_certificate_key {dir}/{name}.key;\n\
         ssl_protocols TLSv1.2 TLSv1.3; ssl_early_data on; default_type text/html;\n\
         location / {{ return 200 \"<p>{name} $ssl_protocol [$ssl_server_name] \
         $server_protocol $request_uri</p>\"; }}"
    )
}

impl Site {
    fn open() -> Self {
        let directory = fresh_directory();
        for name in ["a", "b", "c", "bare"] {
            certify(&directory, name, &format!("DNS:{name}.example.com"));
        }
        let nginx = Nginx::servers(&["a", "b"].map(|name| server(name, &directory)), |_| ());
        let bare = Nginx::servers(&[server("bare", &directory)], |_| ());
        let bind = format!("ssl crt {}/c.both alpn h2,http/1.1", directory.display());
        let answer = "http-request return status 200 content-type text/html \
                      lf-string \"<p>c %[ssl_fc_protocol] [%[ssl_fc_sni]]</p>\"";
        let haproxy = Haproxy::binding(&bind, &["mode http", answer]);
        let pools =
            [("nginx", nginx.address()), ("bare", bare.address()), ("haproxy", haproxy.address())];
        let pointsman = Pointsman::start(&routed(&[], &ROUTES, &pools));
        Site { pointsman, _servers: (nginx, bare, haproxy), directory }
    }

    fn file(&self, name: &str) -> String {
        self.directory.join(name).to_str().unwrap().to_owned()
    }

    fn port(&self) -> String {
        self.pointsman.address("edge").rsplit_once(':').unwrap().1.to_owned()
    }

    /// Gets the page of a name by curl, which verifies this certificate.
    fn curl(&self, name: &str, certificate: &str, more: &[&str]) -> Answer {
        let port = self.port();
        let host = format!("{name}.example.com");
        finish(
            Command::new("curl")
                .args(["-sSf", "--max-time", "15", "--cacert", &self.file(certificate)])
                .args(["--resolve", &format!("{host}:{port}:127.0.0.1")])
                .args(more)
                .arg(format!("https://{host}:{port}/")),
        )
    }

    /// `openssl s_client` with a request to `host` on its input, to the server's close.
    fn s_client(&self, host: &str, more: &[&str]) -> Answer {
        let request = self.file("request");
        let text = format!("GET / HTTP/1.0\r\nHost: {host}.example.com\r\n\r\n");
        fs::write(&request, text).unwrap();
        let connect = ["s_client", "-ign_eof", "-connect", &self.pointsman.address("edge")];
        finish_reading(Command::new("openssl").args(connect).args(more), Path::new(&request))
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _kept = fs::remove_dir_all(&self.directory);
    }
}

#[test]
fn curl_verifies_each_server_by_its_name() {
    let site = Site::open();
    let versions = [("1.2", "TLSv1.2"), ("1.3", "TLSv1.3")];
    for (version, protocol) in versions {
        let tls = [&*format!("--tlsv{version}"), "--tls-max", version];
        for http in ["--http1.1", "--http2"] {
            let options = [&tls[..], &[http]].concat();
            for name in ["a", "b", "c"] {
                let answer = site.curl(name, &format!("{name}.pem"), &options).success();
                let expected = format!("<p>{name} {protocol} [{name}.example.com]");
                assert!(answer.starts_with(&expected), "{answer}");
            }
        }
    }
    // Each has its own certificate, so another's does not verify.
    for (name, certificate) in [("a", "b.pem"), ("b", "c.pem"), ("c", "a.pem")] {
        assert_eq!(site.curl(name, certificate, &[]).code, 60);
    }
    // The alert, read by a client that knows it.
    let rejected = site.curl("gone", "a.pem", &[]);
    assert_eq!(rejected.code, 35, "{rejected:?}");
    assert!(rejected.stderr.contains("unrecognized name"), "{rejected:?}");
    for record in site.pointsman.access_log(16) {
        let pool = match record.text("sni") {
            "a.example.com" | "b.example.com" => "nginx",
            "c.example.com" => "haproxy",
            _ => "-",
        };
        assert_eq!(record.text("pool"), pool);
    }
}

#[test]
fn openssl_by_name_and_protocol() {
    let site = Site::open();
    for version in ["-tls1_2", "-tls1_3"] {
        let protocol = version.replace("-tls1_", "TLSv1.");
        let expect = |more: &[&str], who: &str, what: &str| {
            let certificate = site.file(&format!("{who}.pem"));
            let verify = [version, "-verify_return_error", "-CAfile", &certificate];
            let output = site.s_client(who, &[&verify[..], more].concat()).success();
            assert!(output.contains("Verify return code: 0 (ok)"), "{output}");
            assert!(output.contains(&format!("<p>{who} {protocol} [")), "{output}");
            assert!(output.contains(what), "{output}");
        };
        expect(&["-servername", "a.example.com"], "a", "[a.example.com]");
        expect(
            &["-servername", "B.EXAMPLE.com", "-alpn", "http/1.1"],
            "b",
            "ALPN protocol: http/1.1",
        );
        expect(&["-servername", "c.example.com"], "c", "[c.example.com]");
        expect(&["-noservername"], "bare", "[]");
        expect(&["-servername", "d.example.com"], "bare", "[d.example.com]");
        expect(&["-noservername", "-alpn", "special,http/1.1"], "c", "ALPN protocol: http/1.1");
        let rejected = site.s_client("gone", &[version, "-servername", "gone.example.com"]);
        assert_eq!(rejected.code, 1);
        assert!(rejected.stderr.contains("alert number 112"), "{rejected:?}");
    }
}

#[test]
fn sessions_are_resumed_and_early_data_is_accepted() {
    let site = Site::open();
    let name = ["-servername", "a.example.com"];
    for (version, protocol) in [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")] {
        let session = site.file(&format!("session{version}"));
        let first = site.s_client("a", &[&name[..], &[version, "-sess_out", &session]].concat());
        let output = first.success();
        assert!(output.contains(&format!("New, {protocol}")), "{output}");
        let again = site.s_client("a", &[&name[..], &[version, "-sess_in", &session]].concat());
        let output = again.success();
        assert!(output.contains(&format!("Reused, {protocol}")), "{output}");
        assert!(output.contains("<p>a "), "{output}");
    }
    // A request of its own, which is sent as early data or not at all.
    let (session, request) = (site.file("session-tls1_3"), site.file("early"));
    fs::write(&request, "GET /early HTTP/1.0\r\nHost: a.example.com\r\n\r\n").unwrap();
    let early = ["-tls1_3", "-sess_in", &session, "-early_data", &request];
    let output = site.s_client("a", &[&name[..], &early].concat()).success();
    assert!(output.contains("Reused, TLSv1.3"), "{output}");
    assert!(output.contains("Early data was accepted"), "{output}");
    assert!(output.contains("/early</p>"), "{output}");
}

#[test]
fn chromium_shows_the_page_of_each_name() {
    let site = Site::open();
    for (name, pool) in [("a", "nginx"), ("b", "nginx"), ("c", "haproxy")] {
        let host = format!("{name}.example.com");
        let page = browse(&format!("https://{host}:{}/", site.port()));
        assert!(page.contains(&format!("<p>{name} TLSv1.3 [{host}]")), "{page}");
        let records = site.pointsman.access_log(1);
        let mine: Vec<_> = records.iter().filter(|record| record.text("sni") == host).collect();
        assert!(!mine.is_empty(), "{records:?}");
        for record in mine {
            assert_eq!(record.text("pool"), pool);
            assert!(record.list("alpn").contains(&"h2"), "{record:?}");
        }
    }
    let metrics = site.pointsman.wait_idle();
    assert!(metrics.value("pointsman_ech_total", &[("listener", "edge")]) >= 3.0);
}
