//! Who may change something over the admin server, or see who is connected.
//!
//! A web page that a user of this machine looks at can send requests to loopback addresses. It
//! cannot set `X-Pointsman` without a preflight that we never grant, and if it gets around the
//! same-origin policy by a name of its own that resolves to this machine (DNS rebinding), that
//! name is in `Host`. From elsewhere than loopback a bearer token is needed on top.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::Path;

use hyper::header::{AUTHORIZATION, HOST};
use hyper::http::request::Parts;
use hyper::http::uri::Authority;

use crate::limits::ADMIN_TOKEN;

/// The other side of an admin connection. Addresses are canonical: no IPv4-mapped IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// Whoever may open the socket file.
    Unix,
    /// Its address, and the one it connected to.
    Tcp { remote: IpAddr, local: IpAddr },
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("the header `X-Pointsman: 1` is missing")]
    Header,
    #[error("`Host` is not an address of this machine")]
    Host,
    #[error("from elsewhere than loopback this needs `admin.token_file`")]
    NoToken,
    #[error("the bearer token is missing or wrong")]
    WrongToken,
    #[error("the token file cannot be read")]
    Unreadable,
}

/// The bearer token. Not shown by `Debug`.
#[derive(Clone)]
pub struct Token(Box<[u8]>);

impl Token {
    /// Reads a token file: one line, white space around it does not count.
    pub fn read(path: &Path) -> io::Result<Token> {
        let mut text = Vec::new();
        File::open(path)?.take(ADMIN_TOKEN + 1).read_to_end(&mut text)?;
        let token = text.trim_ascii();
        let printable = token.iter().all(u8::is_ascii_graphic);
        if token.is_empty() || !printable || text.len() as u64 > ADMIN_TOKEN {
            let problem = format!("a token is one line of 1 to {ADMIN_TOKEN} printable characters");
            return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
        }
        Ok(Token(token.into()))
    }

    /// As text, for a header.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// In a time that depends on the lengths alone.
    fn matches(&self, other: &[u8]) -> bool {
        let differing = self.0.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b));
        std::hint::black_box(differing) == 0 && self.0.len() == other.len()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// Whether this request may be answered if it is [guarded](super::resource). The token is read when one is needed, so that a
/// new one counts from the moment it is in the file.
pub(super) fn may_change(
    request: &Parts,
    peer: Peer,
    token_file: Option<&Path>,
) -> Result<(), Refusal> {
    let Peer::Tcp { remote, local } = peer else { return Ok(()) };
    if request.headers.get("x-pointsman").is_none_or(|value| value != "1") {
        return Err(Refusal::Header);
    }
    if !host_is_here(request, local) {
        return Err(Refusal::Host);
    }
    if remote.is_loopback() {
        return Ok(());
    }
    let token = Token::read(token_file.ok_or(Refusal::NoToken)?).map_err(|error| {
        tracing::warn!(%error, "cannot read admin.token_file");
        Refusal::Unreadable
    })?;
    let given = request.headers.get(AUTHORIZATION).map_or(&b""[..], |value| value.as_bytes());
    match given.split_at_checked(b"bearer ".len()) {
        Some((scheme, given)) if scheme.eq_ignore_ascii_case(b"bearer ") => {
            if token.matches(given) { Ok(()) } else { Err(Refusal::WrongToken) }
        }
        _ => Err(Refusal::WrongToken),
    }
}

/// Exactly one `Host`, and the target's if it has one, each `localhost` or an address that is
/// loopback or the one connected to. Ports do not matter: someone may forward one.
fn host_is_here(request: &Parts, local: IpAddr) -> bool {
    let mut hosts = request.headers.get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
    let Some(host) = host.to_str().ok().and_then(|text| text.parse::<Authority>().ok()) else {
        return false;
    };
    let here = |authority: &Authority| {
        let host = authority.host();
        let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        let address = bare.parse::<IpAddr>().map(|address| address.to_canonical());
        // An authority may carry a user: nothing that has one comes from a client of ours.
        !authority.as_str().contains('@')
            && (host.eq_ignore_ascii_case("localhost")
                || address.is_ok_and(|address| address.is_loopback() || address == local))
    };
    here(&host) && request.uri.authority().is_none_or(here)
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    fn request(uri: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn tcp(remote: &str, local: &str) -> Peer {
        Peer::Tcp { remote: remote.parse().unwrap(), local: local.parse().unwrap() }
    }

    #[test]
    fn host_must_be_of_this_machine() {
        let peer = tcp("127.0.0.1", "192.0.2.7");
        for (host, expected) in [
            ("localhost", true),
            ("LocalHost:9901", true),
            ("127.0.0.1:9901", true),
            ("127.9.9.9", true),
            ("[::1]:9901", true),
            ("192.0.2.7:9901", true),
            ("[::ffff:192.0.2.7]", true),
            ("192.0.2.8:9901", false),
            ("evil.example", false),
            ("localhost.evil.example", false),
            ("localhost@evil.example", false),
            ("user@localhost", false),
            ("0.0.0.0:9901", false),
            ("2130706433", false),
            ("", false),
        ] {
            let request = request("/", &[("host", host), ("x-pointsman", "1")]);
            let expected = if expected { Ok(()) } else { Err(Refusal::Host) };
            assert_eq!(may_change(&request, peer, None), expected, "{host}");
        }
    }

    #[test]
    fn every_name_in_the_request_counts() {
        let peer = tcp("127.0.0.1", "127.0.0.1");
        let header = ("x-pointsman", "1");
        let twice = request("/", &[header, ("host", "localhost"), ("host", "evil.example")]);
        assert_eq!(may_change(&twice, peer, None), Err(Refusal::Host));
        let none = request("/", &[header]);
        assert_eq!(may_change(&none, peer, None), Err(Refusal::Host));
        let absolute = request("http://evil.example/", &[header, ("host", "localhost")]);
        assert_eq!(may_change(&absolute, peer, None), Err(Refusal::Host));
        let without = request("/", &[("host", "localhost")]);
        assert_eq!(may_change(&without, peer, None), Err(Refusal::Header));
        assert_eq!(may_change(&request("/", &[]), Peer::Unix, None), Ok(()));
    }

    #[test]
    fn from_elsewhere_with_the_token_alone() {
        let path = std::env::temp_dir().join(format!("pointsman-token-{}", std::process::id()));
        std::fs::write(&path, "s3cret\n").unwrap();
        let peer = tcp("192.0.2.9", "192.0.2.7");
        let common = [("host", "192.0.2.7"), ("x-pointsman", "1")];
        let ask = |authorization: &str, file: Option<&Path>| {
            let mut headers = common.to_vec();
            headers.push(("authorization", authorization));
            may_change(&request("/", &headers), peer, file)
        };
        assert_eq!(ask("Bearer s3cret", None), Err(Refusal::NoToken));
        assert_eq!(ask("Bearer s3cret", Some("/nonexistent".as_ref())), Err(Refusal::Unreadable));
        for (authorization, expected) in [
            ("Bearer s3cret", Ok(())),
            ("bearer s3cret", Ok(())),
            ("Bearer s3cre", Err(Refusal::WrongToken)),
            ("Bearer s3cret2", Err(Refusal::WrongToken)),
            ("Bearer ", Err(Refusal::WrongToken)),
            ("s3cret", Err(Refusal::WrongToken)),
            ("Basic s3cret", Err(Refusal::WrongToken)),
            ("", Err(Refusal::WrongToken)),
        ] {
            assert_eq!(ask(authorization, Some(&path)), expected, "{authorization}");
        }
        assert_eq!(format!("{:?}", Token::read(&path).unwrap()), "Token");
        std::fs::write(&path, " \n").unwrap();
        assert_eq!(ask("Bearer ", Some(&path)), Err(Refusal::Unreadable));
        std::fs::remove_file(&path).unwrap();
    }
}
