//! How a health check ended.

use std::time::{Duration, Instant};

use super::outcome::ConnectFailure;

/// The latest check of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckReport {
    /// When it ended.
    pub ended: Instant,
    /// How long it took.
    pub took: Duration,
    /// Why it failed; `Ok` if it passed.
    pub result: Result<(), CheckFailure>,
}

/// Why a check failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CheckFailure {
    /// No connection; over UDP, port unreachable is refused.
    Connect(ConnectFailure),
    /// No descriptor or memory: our shortage, not the backend's fault.
    Shortage,
    /// Connected, but no whole answer within the timeout.
    Silent,
    /// The end of the stream in the place of an answer.
    Closed,
    /// RST in the place of an answer.
    Reset,
    /// The backend ended the handshake by this alert (RFC 8446 section 6).
    TlsAlert(u8),
    /// What came was not TLS, or none that both sides speak.
    TlsError,
    /// The certificate is not valid for the name.
    Certificate,
    /// What came was not HTTP.
    Malformed,
    /// An HTTP status that is not expected.
    Status(u16),
    /// An answer without what is expected in it.
    Unexpected,
    /// An answer that goes on beyond [`CHECK_ANSWER`](crate::limits::CHECK_ANSWER).
    TooLong,
}

impl CheckFailure {
    /// The word in status and logs.
    pub fn name(self) -> &'static str {
        match self {
            CheckFailure::Connect(failure) => failure.name(),
            CheckFailure::Shortage => "shortage",
            CheckFailure::Silent => "silent",
            CheckFailure::Closed => "closed",
            CheckFailure::Reset => "reset",
            CheckFailure::TlsAlert(_) => "tls_alert",
            CheckFailure::TlsError => "tls_error",
            CheckFailure::Certificate => "certificate",
            CheckFailure::Malformed => "malformed",
            CheckFailure::Status(_) => "status",
            CheckFailure::Unexpected => "unexpected",
            CheckFailure::TooLong => "too_long",
        }
    }

    /// The status, or the number of the alert.
    pub fn code(self) -> Option<u16> {
        match self {
            CheckFailure::TlsAlert(alert) => Some(u16::from(alert)),
            CheckFailure::Status(status) => Some(status),
            _ => None,
        }
    }

    /// Whether it is our own shortage, which says nothing about the backend.
    pub fn is_ours(self) -> bool {
        matches!(self, CheckFailure::Connect(ConnectFailure::LocalPorts) | CheckFailure::Shortage)
    }
}
