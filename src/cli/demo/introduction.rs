//! What the demo says at its start: what there is, and lines to paste.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use super::names::ZONE;
use super::{SITES, Servers};
use crate::address::Address;

/// Where the balancer listens.
pub(super) struct Doors<'a> {
    pub https: &'a Address,
    pub dns: SocketAddr,
    pub admin: Option<&'a Address>,
}

/// The whole text.
pub(super) fn introduction(doors: &Doors<'_>, servers: &Servers, certificate: &Path) -> String {
    let &Doors { https: entrance, dns, admin } = doors;
    let mut out = String::new();
    let mut line = |text: &str| {
        out.write_fmt(format_args!("{text}\n")).expect("writing to a String cannot fail");
    };
    line("Three HTTPS sites behind one balancer, which routes by host name and decrypts nothing:");
    line("");
    for site in &SITES {
        let own = servers.sites.iter().filter(|backend| backend.site().pool == site.pool);
        let own: Vec<_> = own.map(|b| format!("{} {}", b.name(), b.address())).collect();
        line(&format!("  {:<20} {}", site.host, own.join(", ")));
    }
    line(&format!("  {:<20} refused: the TLS alert unrecognized_name", "any other name"));
    line(&format!("  {:<20} {entrance}, a health check every 500 ms", "the balancer"));
    line("");
    line("And two name servers behind the same one, over UDP; a question ends with its answer:");
    line("");
    let names = servers.names.iter().map(|server| format!("{} {}", server.name, server.address));
    line(&format!("  {:<20} {}", format!("*.{ZONE}"), names.collect::<Vec<_>>().join(", ")));
    line(&format!("  {:<20} {dns} (UDP), the same checks with a question", "the balancer"));
    line("");
    line("Try while it runs:");
    line("");
    for site in &SITES {
        line(&format!("  {}", curl_tls(entrance, site.visited, certificate)));
    }
    if let Some(chromium) = chromium(entrance) {
        line(&format!("  {chromium}"));
    }
    line(&format!("  {}", dig(dns, "a", &format!("www.{ZONE}"))));
    line(&format!("  {}", dig(dns, "txt", &format!("anything.{ZONE}"))));
    if let Some(admin) = admin {
        line(&format!("  {}", curl(admin, "/metrics")));
        line(&format!("  {}", curl(admin, "/api/v1/status")));
        // As it was started: it may not be in the PATH.
        let program = std::env::args().next().unwrap_or_else(|| "pointsman".to_owned());
        line(&format!("  {program} status --admin {admin}"));
    }
    line("");
    line("Ctrl-c ends it.");
    line("");
    out
}

/// A word of a shell: in quotes only where it needs them.
fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@%".contains(c);
    if text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// Asks the balancer for a host name that no name server knows.
fn curl_tls(entrance: &Address, host: &str, certificate: &Path) -> String {
    let certificate = word(&certificate.display().to_string());
    match entrance {
        Address::Ip(entrance) => {
            let (entrance, port) = (reachable(*entrance), entrance.port());
            let ip = bracketed(entrance.ip());
            format!(
                "curl --cacert {certificate} --resolve {host}:{port}:{ip} https://{host}:{port}/"
            )
        }
        Address::Unix(socket) => {
            let socket = socket.display();
            format!("curl --cacert {certificate} --unix-socket {socket} https://{host}/")
        }
    }
}

/// A browser asks for a path of its own, so that it leaves the user's profile alone, and trusts
/// what it does not know.
fn chromium(entrance: &Address) -> Option<String> {
    let entrance = reachable(entrance.ip()?);
    let (host, port, ip) = (SITES.first()?.visited, entrance.port(), bracketed(entrance.ip()));
    Some(format!(
        "chromium --user-data-dir=$(mktemp -d) --ignore-certificate-errors \
         --host-resolver-rules=\"MAP *.example.test {ip}\" https://{host}:{port}/"
    ))
}

/// Asks the name servers behind the balancer.
fn dig(dns: SocketAddr, kind: &str, name: &str) -> String {
    format!("dig @{} -p {} +short {kind} {name}", dns.ip(), dns.port())
}

fn curl(address: &Address, path: &str) -> String {
    match address {
        Address::Ip(address) => format!("curl http://{address}{path}"),
        Address::Unix(socket) => {
            format!("curl --unix-socket {} http://localhost{path}", socket.display())
        }
    }
}

/// The loopback address in place of one that stands for all.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

fn bracketed(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_can_be_pasted() {
        for (address, expected) in [
            ("127.0.0.1:80", "curl http://127.0.0.1:80/x"),
            ("[::1]:80", "curl http://[::1]:80/x"),
            ("unix:/a", "curl --unix-socket /a http://localhost/x"),
        ] {
            assert_eq!(curl(&address.parse().unwrap(), "/x"), expected);
        }
        for (address, expected) in [
            ("127.0.0.1:80", "--resolve a.test:80:127.0.0.1 https://a.test:80/"),
            ("0.0.0.0:80", "--resolve a.test:80:127.0.0.1 https://a.test:80/"),
            ("[::]:80", "--resolve a.test:80:[::1] https://a.test:80/"),
            ("unix:/a", "--unix-socket /a https://a.test/"),
        ] {
            let line = curl_tls(&address.parse().unwrap(), "a.test", Path::new("/c.pem"));
            assert_eq!(line, format!("curl --cacert /c.pem {expected}"));
        }
        for (path, expected) in
            [("/tmp/c.pem", "/tmp/c.pem"), ("/a b/c.pem", "'/a b/c.pem'"), ("/it's", r"'/it'\''s'")]
        {
            assert_eq!(word(path), expected);
        }
        let line = dig("127.0.0.1:53".parse().unwrap(), "txt", "a.test");
        assert_eq!(line, "dig @127.0.0.1 -p 53 +short txt a.test");
        let rule =
            "--host-resolver-rules=\"MAP *.example.test [::1]\" https://shop.example.test:8/";
        assert!(chromium(&"[::]:8".parse().unwrap()).unwrap().ends_with(rule));
    }
}
