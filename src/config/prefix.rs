//! Address prefixes: `10.0.0.0/8`, `2001:db8::/32`, or one address.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};

use super::error::Quoted;

/// Why a text is not a prefix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum PrefixFault {
    #[error("{0} is not an address or a prefix; write it like 10.0.0.0/8 or 2001:db8::/32")]
    Form(Quoted),
    #[error("{0} has a prefix length beyond {1}; write 0 to {1}")]
    Length(Quoted, u8),
    #[error("{0} has bits beyond its prefix length; write {1}")]
    Bits(Quoted, IpNet),
}

/// Reads a prefix. One address is the prefix of its full length; IPv4-mapped ones are IPv4.
pub fn parse_prefix(text: &str) -> Result<IpNet, PrefixFault> {
    let quoted = || Quoted::new(text);
    let form = || PrefixFault::Form(quoted());
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().map_err(|_| form())?;
    let longest = if address.is_ipv4() { 32 } else { 128 };
    let length = match length {
        None => longest,
        Some(digits) => {
            let plain = digits == "0" || !digits.starts_with(['0', '+']);
            let length: u16 = digits.parse().ok().filter(|_| plain).ok_or_else(form)?;
            u8::try_from(length)
                .ok()
                .filter(|length| *length <= longest)
                .ok_or_else(|| PrefixFault::Length(quoted(), longest))?
        }
    };
    let prefix = IpNet::new(address, length).map_err(|_| PrefixFault::Length(quoted(), longest))?;
    if prefix != prefix.trunc() {
        return Err(PrefixFault::Bits(quoted(), prefix.trunc()));
    }
    Ok(unmapped(prefix))
}

fn unmapped(prefix: IpNet) -> IpNet {
    let IpNet::V6(v6) = prefix else { return prefix };
    let mapped = v6.addr().to_ipv4_mapped().zip(v6.prefix_len().checked_sub(96));
    let v4 = mapped.and_then(|(address, length)| Ipv4Net::new(address, length).ok());
    v4.map_or(prefix, IpNet::V4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes() {
        for (text, expected) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("10.1.2.3", "10.1.2.3/32"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("2001:DB8::/32", "2001:db8::/32"),
            ("::1", "::1/128"),
            ("::/0", "::/0"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::ffff:10.1.2.3", "10.1.2.3/32"),
        ] {
            assert_eq!(parse_prefix(text).unwrap().to_string(), expected, "{text}");
        }
    }

    #[test]
    fn refused() {
        for (text, expected) in [
            ("", "is not an address"),
            ("10.0.0.0/", "is not an address"),
            ("10.0.0.0/08", "is not an address"),
            ("10.0.0.0/-1", "is not an address"),
            ("010.0.0.0/8", "is not an address"),
            ("example.com", "is not an address"),
            ("10.0.0.0/33", "beyond 32; write 0 to 32"),
            ("10.0.0.0/999", "beyond 32"),
            ("::/129", "beyond 128"),
            ("10.0.0.1/8", "write 10.0.0.0/8"),
            ("2001:db8::1/32", "write 2001:db8::/32"),
        ] {
            let fault = parse_prefix(text).unwrap_err().to_string();
            assert!(fault.contains(expected), "{text}: {fault}");
        }
    }
}
