//! A session with both its ends in the hands of the test.

use super::{Backend, Pointsman, Record, Stream, one_listener, wait_until};

/// An end of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Who connected.
    Client,
    /// Who was connected to.
    Backend,
}

impl Side {
    /// A test of one side is a test of the other as well.
    pub const BOTH: [Side; 2] = [Side::Client, Side::Backend];

    /// The termination that this side causes: `closed` or `reset`.
    pub fn causes(self, what: &str) -> String {
        match self {
            Side::Client => format!("client_{what}"),
            Side::Backend => format!("backend_{what}"),
        }
    }
}

/// The two ends, and what is between them. Ends that are taken out close when dropped.
#[derive(Debug)]
pub struct Session {
    /// What connected.
    pub client: Stream,
    /// What was connected to.
    pub server: Stream,
    /// Where the server comes from.
    pub backend: Backend,
    /// What is tested.
    pub pointsman: Pointsman,
}

impl Session {
    /// Opens one through a process of its own; `listener` are further keys of the listener.
    pub fn open(listener: &str) -> Self {
        let backend = Backend::manual();
        let pointsman = Pointsman::start(&one_listener(listener, &[&backend.address()], ""));
        Self::through(pointsman, backend)
    }

    /// Opens one through a process that has a listener `edge`, to a manual backend of it.
    pub fn through(pointsman: Pointsman, backend: Backend) -> Self {
        let client = pointsman.connect("edge");
        let server = backend.accept();
        // A backend that resets before it is known to be connected is one that refused.
        wait_until("the session to be connected", || {
            pointsman.metrics().sum("pointsman_backend_connections_total", ("pool", "pool")) > 0.0
        });
        Session { client, server, backend, pointsman }
    }

    /// The end on this side, the other one, and what is left.
    pub fn ends(self, side: Side) -> (Stream, Stream, Pointsman) {
        let Session { client, server, pointsman, .. } = self;
        match side {
            Side::Client => (client, server, pointsman),
            Side::Backend => (server, client, pointsman),
        }
    }
}

/// Waits for the only record, which must have this termination, and for every gauge to return.
pub fn expect_record(pointsman: &Pointsman, termination: &str) -> Record {
    let records = pointsman.access_log(1);
    assert_eq!(records.len(), 1, "{records:?}");
    assert_eq!(records[0].text("termination"), termination);
    let metrics = pointsman.wait_idle();
    assert_eq!(metrics.closed("edge", termination), 1.0);
    records[0].clone()
}
