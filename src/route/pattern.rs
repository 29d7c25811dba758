//! Host names as the configuration gives them: `example.com`, `*.example.com`.

use std::fmt;
use std::str::FromStr;

use idna::AsciiDenyList;

use crate::wire::host_name::{self, Host, NameFault};

/// A host name, or all names under a domain.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPattern {
    /// A-labels in lower case, no trailing dot; of a wildcard, what follows `*.`.
    name: Box<str>,
    wildcard: bool,
}

/// Why a text is not a [`HostPattern`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// `*` alone.
    #[error(
        "`*` alone is no host name; `*.example.com` is every name under a domain, and a route \
         without `sni` takes everything"
    )]
    Bare,
    /// A `*` elsewhere than as the whole first label.
    #[error("`{0}`: `*` stands only in front, for whole labels, as in `*.example.com`")]
    Partial(String),
    /// An address; clients send no name for those (RFC 6066 section 3).
    #[error("`{0}` is an IP address, for which clients send no name; only a host name can match")]
    Ip(String),
    /// A U-label or A-label that IDNA does not allow (UTS #46).
    #[error("`{0}` is no valid internationalized host name")]
    Idna(String),
    /// Not a host name otherwise.
    #[error("`{0}`: {1}")]
    Name(String, NameFault),
}

impl HostPattern {
    /// Whether the pattern is that of all names under a domain.
    pub fn is_wildcard(&self) -> bool {
        self.wildcard
    }

    /// The name, or of a wildcard the domain under which it matches.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether `name` (A-labels in lower case, no trailing dot) satisfies it: the same name, or
    /// one or more labels in front of the domain.
    pub fn matches(&self, name: &str) -> bool {
        if !self.wildcard {
            return name == &*self.name;
        }
        let labels = name.strip_suffix(&*self.name).and_then(|front| front.strip_suffix('.'));
        labels.is_some_and(|labels| !labels.is_empty())
    }
}

impl FromStr for HostPattern {
    type Err = PatternError;

    /// Upper case and one trailing dot do not count; U-labels become A-labels.
    fn from_str(text: &str) -> Result<Self, PatternError> {
        if matches!(text, "*" | "*.") {
            return Err(PatternError::Bare);
        }
        let (wildcard, name) = match text.strip_prefix("*.") {
            Some(name) => (true, name),
            None => (false, text),
        };
        if name.contains('*') {
            return Err(PatternError::Partial(text.to_owned()));
        }
        // Before IDNA, which would say less of what is wrong with it.
        if let Ok(Host::Ip(_)) = host_name::parse(name.as_bytes()) {
            return Err(PatternError::Ip(text.to_owned()));
        }
        // What IDNA allows of ASCII is decided below, as for names on the wire.
        let ascii = idna::domain_to_ascii_cow(name.as_bytes(), AsciiDenyList::EMPTY)
            .map_err(|_| PatternError::Idna(text.to_owned()))?;
        match host_name::parse(ascii.as_bytes()) {
            Ok(Host::Name(name)) => Ok(HostPattern { name, wildcard }),
            Ok(Host::Ip(_)) => Err(PatternError::Ip(text.to_owned())),
            Err(fault) => Err(PatternError::Name(text.to_owned(), fault)),
        }
    }
}

/// The canonical form, which parses to the same pattern.
impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let star = if self.wildcard { "*." } else { "" };
        write!(f, "{star}{}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_forms() {
        let check = |input: &str, expected: &str| {
            let pattern: HostPattern = input.parse().unwrap_or_else(|e| panic!("{input}: {e}"));
            assert_eq!(pattern.to_string(), expected, "{input}");
            assert_eq!(pattern.is_wildcard(), expected.starts_with("*."), "{input}");
            assert_eq!(expected.parse::<HostPattern>().unwrap(), pattern, "{input}");
        };
        check("example.com", "example.com");
        check("EXAMPLE.Com.", "example.com");
        check("*.Example.com.", "*.example.com");
        check("*.com", "*.com");
        check("localhost", "localhost");
        check("my_host._tcp.example", "my_host._tcp.example");
        check("r3---sn-4g5e.example", "r3---sn-4g5e.example");
        check("bücher.example", "xn--bcher-kva.example");
        check("BÜCHER.example", "xn--bcher-kva.example");
        check("*.bücher.example", "*.xn--bcher-kva.example");
        check("xn--bcher-kva.example", "xn--bcher-kva.example");
        check("XN--BCHER-KVA.EXAMPLE", "xn--bcher-kva.example");
        check("straße.example", "xn--strae-oqa.example");
        check("例え。テスト", "xn--r8jz45g.xn--zckzah");
        check("bücher_2.example", "xn--bcher_2-n2a.example");
        check("10.example", "10.example");
    }

    #[test]
    fn refused_forms() {
        let check = |input: &str, expected: &str| {
            let error = input.parse::<HostPattern>().expect_err(input).to_string();
            assert!(error.contains(expected), "{input}: {error}");
        };
        check("*", "`*` alone");
        check("*.", "`*` alone");
        for partial in ["w*.x.com", "*w.x.com", "a.*.com", "*.*.com", "**.com", "*com", "a.*"] {
            check(partial, "only in front");
        }
        check("10.0.0.1", "is an IP address");
        check("[::1]", "is an IP address");
        check("2001:db8::1", "is an IP address");
        check("*.10.0.0.1", "is an IP address");
        check("１０.0.0.1", "is an IP address");
        check("", "is empty");
        check(".", "is empty");
        check(".example.com", "is empty");
        check("*..example.com", "is empty");
        check("a..b", "is empty");
        check("example.com..", "is empty");
        check("example.com:443", "character");
        check("https://example.com", "character");
        check("exa mple.com", "character");
        check("a\0b", "character");
        check(&"a".repeat(64), "63");
        check(&"a.".repeat(128), "253");
        check("xn--a.example", "internationalized");
        check("\u{200d}.example", "internationalized");
    }

    #[test]
    fn matches() {
        let check = |pattern: &str, name: &str, expected| {
            let parsed: HostPattern = pattern.parse().unwrap();
            assert_eq!(parsed.matches(name), expected, "{pattern} {name}");
        };
        check("example.com", "example.com", true);
        check("example.com", "www.example.com", false);
        check("*.example.com", "www.example.com", true);
        check("*.example.com", "a.b.example.com", true);
        check("*.example.com", "example.com", false);
        check("*.example.com", "xexample.com", false);
        check("*.example.com", ".example.com", false);
        check("*.example.com", "example.com.evil.com", false);
    }
}
