//! A request for a page, of which the status decides.

use super::channel::Channel;
use crate::address::Address;
use crate::config::Http;
use crate::limits::CHECK_ANSWER;
use crate::state::CheckFailure;
use crate::wire::http_head::{self, Head};

/// Bytes read at a time.
const READ: usize = 1024;

/// Asks, and reads the head of the answer.
pub(super) async fn talk(
    channel: &mut Channel,
    http: &Http,
    address: &Address,
) -> Result<(), CheckFailure> {
    channel.write(request(http, address).as_bytes()).await?;
    let mut answer = Vec::new();
    loop {
        let mut buffer = [0; READ];
        let read = channel.read(&mut buffer).await?;
        if read == 0 {
            return Err(CheckFailure::Closed);
        }
        answer.extend_from_slice(buffer.get(..read).unwrap_or_default());
        match http_head::read(&answer) {
            Head::Status(status) if http.expect.contains(&status) => return Ok(()),
            Head::Status(status) => return Err(CheckFailure::Status(status)),
            Head::Malformed => return Err(CheckFailure::Malformed),
            Head::Incomplete if answer.len() >= CHECK_ANSWER => return Err(CheckFailure::TooLong),
            Head::Incomplete => {}
        }
    }
}

/// The request (RFC 9112 section 3). The configuration has nothing in it that could end a line.
fn request(http: &Http, address: &Address) -> String {
    let asked = http.host.as_deref().or(http.tls.as_ref().and_then(|tls| tls.sni.as_deref()));
    let host = match (asked, address) {
        (Some(name), _) => name.to_owned(),
        (None, Address::Ip(address)) => address.to_string(),
        (None, Address::Unix(_)) => "localhost".to_owned(),
    };
    format!(
        "GET {} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: pointsman/{}\r\nAccept: */*\r\n\
         Connection: close\r\n\r\n",
        http.path,
        env!("CARGO_PKG_VERSION")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Tls;

    #[test]
    fn hosts() {
        let tls = Some(Tls { sni: Some("b.example".into()), ca_file: None });
        for (host, tls, address, expected) in [
            (Some("a.example:8080"), tls.clone(), "10.0.0.1:80", "a.example:8080"),
            (None, tls, "10.0.0.1:443", "b.example"),
            (None, None, "[2001:db8::1]:80", "[2001:db8::1]:80"),
            (None, None, "unix:/run/a", "localhost"),
        ] {
            let (path, host) = ("/a?b".into(), host.map(Into::into));
            let http = Http { path, host, expect: 200..=399, tls };
            let request = request(&http, &address.parse().unwrap());
            let lines: Vec<_> = request.split("\r\n").collect();
            assert_eq!(lines[..2], ["GET /a?b HTTP/1.1", &format!("Host: {expected}")]);
            assert_eq!(lines[4..], ["Connection: close", "", ""]);
        }
    }
}
