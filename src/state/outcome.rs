//! How things ended, as closed vocabularies: they are labels of metrics and words of the log.

/// Why a connection ended; each connection has exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)] // the README's termination table says what each means
pub enum Termination {
    ClientClosed,
    BackendClosed,
    ClientReset,
    BackendReset,
    IdleTimeout,
    HalfClosedTimeout,
    Lifetime,
    ConnectFailed,
    NoBackend,
    NoRoute,
    Rejected,
    Limit,
    Rate,
    Overload,
    PrereadTimeout,
    PrereadInvalid,
    PrereadTooLarge,
    PrereadClosed,
    Responses,
    Requests,
    Drained,
    BackendDown,
    Shutdown,
    Error,
}

impl Termination {
    /// Every termination.
    pub const ALL: [Termination; 24] = [
        Termination::ClientClosed,
        Termination::BackendClosed,
        Termination::ClientReset,
        Termination::BackendReset,
        Termination::IdleTimeout,
        Termination::HalfClosedTimeout,
        Termination::Lifetime,
        Termination::ConnectFailed,
        Termination::NoBackend,
        Termination::NoRoute,
        Termination::Rejected,
        Termination::Limit,
        Termination::Rate,
        Termination::Overload,
        Termination::PrereadTimeout,
        Termination::PrereadInvalid,
        Termination::PrereadTooLarge,
        Termination::PrereadClosed,
        Termination::Responses,
        Termination::Requests,
        Termination::Drained,
        Termination::BackendDown,
        Termination::Shutdown,
        Termination::Error,
    ];

    /// The word in the access log and in `connections_closed_total`.
    pub fn name(self) -> &'static str {
        match self {
            Termination::ClientClosed => "client_closed",
            Termination::BackendClosed => "backend_closed",
            Termination::ClientReset => "client_reset",
            Termination::BackendReset => "backend_reset",
            Termination::IdleTimeout => "idle_timeout",
            Termination::HalfClosedTimeout => "half_closed_timeout",
            Termination::Lifetime => "lifetime",
            Termination::ConnectFailed => "connect_failed",
            Termination::NoBackend => "no_backend",
            Termination::NoRoute => "no_route",
            Termination::Rejected => "rejected",
            Termination::Limit => "limit",
            Termination::Rate => "rate",
            Termination::Overload => "overload",
            Termination::PrereadTimeout => "preread_timeout",
            Termination::PrereadInvalid => "preread_invalid",
            Termination::PrereadTooLarge => "preread_too_large",
            Termination::PrereadClosed => "preread_closed",
            Termination::Responses => "responses",
            Termination::Requests => "requests",
            Termination::Drained => "drained",
            Termination::BackendDown => "backend_down",
            Termination::Shutdown => "shutdown",
            Termination::Error => "error",
        }
    }
}

/// Why a datagram went nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DropReason {
    /// The kernel had no room for it in a listener's receive buffer (`udp.receive_buffer`).
    ReceiveBuffer,
    /// The kernel had no room to send it, to a client or a backend.
    SendBuffer,
    /// It is longer than the way to its receiver takes.
    TooLarge,
    /// Its flow was refused, or ended by the time it came; the termination says why.
    Flow,
    /// It came faster than `limits.per_source.rate` allows.
    Rate,
    /// It is part of a QUIC hello that never became one.
    Preread,
    /// Every backend that was tried refused it.
    Backend,
    /// An answer that nobody waits for any more.
    Unexpected,
    /// Anything else that the kernel refused.
    Other,
}

impl DropReason {
    /// Every reason.
    pub const ALL: [DropReason; 9] = [
        DropReason::ReceiveBuffer,
        DropReason::SendBuffer,
        DropReason::TooLarge,
        DropReason::Flow,
        DropReason::Rate,
        DropReason::Preread,
        DropReason::Backend,
        DropReason::Unexpected,
        DropReason::Other,
    ];

    /// The label in `udp_dropped_total`.
    pub fn name(self) -> &'static str {
        match self {
            DropReason::ReceiveBuffer => "receive_buffer",
            DropReason::SendBuffer => "send_buffer",
            DropReason::TooLarge => "too_large",
            DropReason::Flow => "flow",
            DropReason::Rate => "rate",
            DropReason::Preread => "preread",
            DropReason::Backend => "backend",
            DropReason::Unexpected => "unexpected",
            DropReason::Other => "other",
        }
    }
}

/// Why one attempt to connect to a backend failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ConnectFailure {
    /// The backend's host answered with RST, or nothing listens on the unix path.
    Refused,
    /// No answer within `connect.timeout`.
    Timeout,
    /// No route, or ICMP said so.
    Unreachable,
    /// No local port left towards this backend: our shortage, not the backend's fault.
    LocalPorts,
    /// Anything else, such as a unix socket without permission, or no descriptor left.
    Other,
}

impl ConnectFailure {
    /// Every reason.
    pub const ALL: [ConnectFailure; 5] = [
        ConnectFailure::Refused,
        ConnectFailure::Timeout,
        ConnectFailure::Unreachable,
        ConnectFailure::LocalPorts,
        ConnectFailure::Other,
    ];

    /// The word in metrics, status and logs.
    pub fn name(self) -> &'static str {
        match self {
            ConnectFailure::Refused => "refused",
            ConnectFailure::Timeout => "timeout",
            ConnectFailure::Unreachable => "unreachable",
            ConnectFailure::LocalPorts => "local_ports",
            ConnectFailure::Other => "other",
        }
    }
}

/// What became of one attempt to connect, as the access log tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// It was established.
    Connected,
    /// It had been established before, and was kept ready.
    Ready,
    /// It was established, and the backend ended it before its first byte; the hello went on.
    EarlyClose,
    /// It failed.
    Failed(ConnectFailure),
    /// Another attempt beside it was established first.
    Overtaken,
    /// The connection ended for another reason while this was under way.
    Abandoned,
}

impl AttemptOutcome {
    /// The word in the access log.
    pub fn name(self) -> &'static str {
        match self {
            AttemptOutcome::Connected => "connected",
            AttemptOutcome::Ready => "ready",
            AttemptOutcome::EarlyClose => "early_close",
            AttemptOutcome::Failed(failure) => failure.name(),
            AttemptOutcome::Overtaken => "overtaken",
            AttemptOutcome::Abandoned => "abandoned",
        }
    }
}

/// A failed attempt to connect: the reason, and whose fault it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectError {
    /// The reason.
    pub reason: ConnectFailure,
    /// Ours: no local port, descriptor or memory. It says nothing about the backend.
    pub ours: bool,
    /// The backlog of a unix socket is full. Clients can bring that about, and it passes: it says
    /// nothing about the backend's health.
    pub busy: bool,
}

/// Which way bytes went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From clients to backends.
    In,
    /// From backends to clients.
    Out,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_and_names_are_distinct() {
        for (index, termination) in Termination::ALL.into_iter().enumerate() {
            assert_eq!(termination as usize, index);
        }
        for (index, failure) in ConnectFailure::ALL.into_iter().enumerate() {
            assert_eq!(failure as usize, index);
        }
        for (index, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index);
        }
        let mut names: Vec<_> = Termination::ALL.iter().map(|t| t.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Termination::ALL.len());
    }
}
