//! Addresses of listeners and backends: `10.0.0.1:443`, `[2001:db8::1]:443`, `unix:/path`.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::limits::UNIX_PATH;

/// Where to listen or to connect.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// An IP address and port (0 lets the kernel choose, for listeners only). Never an IPv4-mapped IPv6 address: parsing makes it IPv4.
    Ip(SocketAddr),
    /// The path of a unix stream socket.
    Unix(PathBuf),
}

/// Why a text is not an [`Address`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The host is a name; addresses are literal.
    #[error("`{0}` is a name, not an IP address")]
    Name(String),
    /// No port, or one that is not a plain decimal number up to 65535.
    #[error("`{0}` lacks a port (a decimal number up to 65535, no leading zero)")]
    Port(String),
    /// An IPv6 address outside of brackets.
    #[error("`{0}`: an IPv6 address needs brackets")]
    Brackets(String),
    /// An empty or overlong unix path.
    #[error("a unix path has 1 to {UNIX_PATH} bytes and no NUL")]
    UnixPath,
}

impl Address {
    /// The IP address and port, or `None` for a unix socket.
    pub fn ip(&self) -> Option<SocketAddr> {
        match self {
            Address::Ip(address) => Some(*address),
            Address::Unix(_) => None,
        }
    }

    /// The unix path, or `None` for an IP address.
    pub fn unix(&self) -> Option<&Path> {
        match self {
            Address::Ip(_) => None,
            Address::Unix(path) => Some(path),
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if let Some(path) = text.strip_prefix("unix:") {
            let fits = !path.is_empty() && path.len() <= UNIX_PATH && !path.contains('\0');
            return if fits { Ok(Address::Unix(path.into())) } else { Err(AddressError::UnixPath) };
        }
        let (host, port) =
            text.rsplit_once(':').ok_or_else(|| AddressError::Port(text.to_owned()))?;
        if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) {
            return Err(AddressError::Brackets(text.to_owned()));
        }
        let plain = port == "0" || !port.starts_with('0');
        let digits = port.bytes().all(|b| b.is_ascii_digit());
        let port: u16 = port
            .parse()
            .ok()
            .filter(|_| plain && digits)
            .ok_or_else(|| AddressError::Port(text.to_owned()))?;
        let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        let ip: std::net::IpAddr = host.parse().map_err(|_| AddressError::Name(host.to_owned()))?;
        Ok(Address::Ip(SocketAddr::new(ip.to_canonical(), port)))
    }
}

/// The canonical form, which is also a backend's key in hash policies.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Ip(address) => address.fmt(f),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_forms() {
        for (input, expected) in [
            ("10.0.0.1:443", "10.0.0.1:443"),
            ("[2001:DB8:0::1]:443", "[2001:db8::1]:443"),
            ("[::ffff:10.0.0.1]:80", "10.0.0.1:80"),
            ("[::]:443", "[::]:443"),
            ("unix:/run/a.sock", "unix:/run/a.sock"),
        ] {
            assert_eq!(input.parse::<Address>().unwrap().to_string(), expected, "{input}");
        }
    }

    #[test]
    fn refused_forms() {
        for input in [
            "",
            "443",
            ":443",
            "10.0.0.1",
            "10.0.0.1:",
            "10.0.0.1:00",
            "10.0.0.1:0443",
            "10.0.0.1:65536",
            "10.0.0.1:+80",
            "::1:443",
            "[::1]",
            "example.com:443",
            "unix:",
            "010.0.0.1:80",
            "10.0.0.1:80 ",
        ] {
            assert!(input.parse::<Address>().is_err(), "{input}");
        }
        assert!(format!("unix:/{}", "x".repeat(UNIX_PATH)).parse::<Address>().is_err());
    }
}
