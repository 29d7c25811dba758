//! Why a text in the configuration is not an address, said so that it can be mended.

use std::net::{IpAddr, Ipv6Addr};

use super::error::Quoted;
use crate::address::{Address, AddressError};
use crate::limits::UNIX_PATH;

/// What is wrong with an address, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum AddressFault {
    #[error("{0} has a scheme; write an address and a port only, like 10.0.0.1:443")]
    Scheme(Quoted),
    #[error("{0} is a path; a unix socket is written unix:/run/name.sock")]
    Path(Quoted),
    #[error("a unix path has 1 to {UNIX_PATH} bytes; {0} does not fit")]
    UnixPath(Quoted),
    #[error("{0} is a network; write one address and a port, like 10.0.0.1:443")]
    Network(Quoted),
    #[error("{0} is an IPv6 address without brackets; write \"[{1}]:443\", with the quotes")]
    Brackets(Quoted, Ipv6Addr),
    #[error("{0} has brackets missing; an IPv6 address and port are written \"[2001:db8::1]:443\"")]
    Colons(Quoted),
    #[error("{0} is a port without an address; write 0.0.0.0:{1} or \"[::]:{1}\"")]
    OnlyPort(Quoted, u16),
    #[error("{0} lacks a port; write it like 10.0.0.1:443")]
    NoPort(Quoted),
    #[error("{0} has a port with a leading zero; write {1}")]
    PortZero(Quoted, u16),
    #[error("{0} has no port from 0 to 65535 after the last colon; write it like 10.0.0.1:443")]
    Port(Quoted),
    #[error("{0} is a host name; names are not looked up, write the IP address and port")]
    Name(Quoted),
    #[error("{0} is not an IP address and a port; write it like 10.0.0.1:443")]
    Ip(Quoted),
}

/// Reads an address.
pub fn parse_address(text: &str) -> Result<Address, AddressFault> {
    text.parse().map_err(|error| diagnose(text, error))
}

fn diagnose(text: &str, error: AddressError) -> AddressFault {
    let quoted = Quoted::new(text);
    match error {
        AddressError::UnixPath => return AddressFault::UnixPath(quoted),
        _ if text.contains("://") => return AddressFault::Scheme(quoted),
        _ if text.starts_with(['/', '.', '@']) => return AddressFault::Path(quoted),
        _ if text.contains('/') => return AddressFault::Network(quoted),
        _ => {}
    }
    if let Ok(address) = text.parse::<Ipv6Addr>() {
        return AddressFault::Brackets(quoted, address);
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port),
        _ => return without_port(text, quoted),
    };
    if error == AddressError::Brackets(text.to_owned()) {
        return AddressFault::Colons(quoted);
    }
    let digits = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    match port.parse::<u16>() {
        Ok(number) if digits && (host.is_empty() || host == "*") => {
            AddressFault::OnlyPort(quoted, number)
        }
        Ok(number) if digits && port.starts_with('0') && port != "0" => {
            AddressFault::PortZero(quoted, number)
        }
        Ok(_) if digits && is_name(host) => AddressFault::Name(quoted),
        Ok(_) if digits => AddressFault::Ip(quoted),
        _ => AddressFault::Port(quoted),
    }
}

fn without_port(text: &str, quoted: Quoted) -> AddressFault {
    let host = text.trim_start_matches('[').trim_end_matches(']');
    match text.parse::<u16>() {
        Ok(port) if text.bytes().all(|b| b.is_ascii_digit()) => {
            AddressFault::OnlyPort(quoted, port)
        }
        _ if host.parse::<IpAddr>().is_ok() => AddressFault::NoPort(quoted),
        _ if is_name(text) => AddressFault::Name(quoted),
        _ => AddressFault::Ip(quoted),
    }
}

/// Could be looked up: letters and digits in labels, not all of it numbers.
fn is_name(host: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b) || !b.is_ascii();
    host.bytes().all(allowed) && host.bytes().any(|b| !b.is_ascii_digit() && b != b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults() {
        for (text, expected) in [
            ("tcp://10.0.0.1:80", "has a scheme"),
            ("http://example.com", "has a scheme"),
            ("/run/a.sock", "is a path"),
            ("./a.sock", "is a path"),
            ("unix:", "1 to 107 bytes"),
            ("10.0.0.0/33", "is a network"),
            ("10.0.0.0/8:80", "is a network"),
            ("2001:db8::1", "write \"[2001:db8::1]:443\", with the quotes"),
            ("::", "write \"[::]:443\", with the quotes"),
            ("2001:db8::1:99999", "brackets missing"),
            ("443", "write 0.0.0.0:443 or \"[::]:443\""),
            ("0443", "write 0.0.0.0:443 or \"[::]:443\""),
            (":443", "write 0.0.0.0:443 or \"[::]:443\""),
            ("*:443", "write 0.0.0.0:443 or \"[::]:443\""),
            ("10.0.0.1", "lacks a port"),
            ("[::1]", "lacks a port"),
            ("10.0.0.1:0443", "leading zero; write 443"),
            ("10.0.0.1:", "no port from 0 to 65535"),
            ("10.0.0.1:65536", "no port from 0 to 65535"),
            ("10.0.0.1:+1", "no port from 0 to 65535"),
            ("10.0.0.1:https", "no port from 0 to 65535"),
            ("localhost:80", "host name"),
            ("example.com", "host name"),
            ("bücher.example:80", "host name"),
            ("no", "host name"),
            ("22:22", "is not an IP address"),
            ("10.0.0.256:80", "is not an IP address"),
            ("010.0.0.1:80", "is not an IP address"),
            ("[::1:80", "brackets missing"),
            ("[::x]:80", "is not an IP address"),
            ("[]:80", "is not an IP address"),
            ("", "is not an IP address"),
            ("10.0.0.1 :80", "is not an IP address"),
        ] {
            let message = parse_address(text).unwrap_err().to_string();
            assert!(message.contains(expected), "{text}: {message}");
        }
    }
}
