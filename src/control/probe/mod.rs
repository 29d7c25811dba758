//! One health check of one backend, from the first packet to a verdict, within one timeout.
//!
//! ```text
//! tcp  connect ─► [send] ─► [expect]                        ─► FIN, read to the end
//! tls  connect ─► handshake                                 ─► close_notify, FIN, read to the end
//! http connect ─► [handshake] ─► request ─► head ─► read to the end ─► [close_notify], FIN
//! udp  send ─► [expect]
//! ```
//!
//! A backend is not trusted: what is read of it is bounded, and whatever it sends is an answer or
//! a [`CheckFailure`].

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::address::Address;
use crate::config::Probe;
use crate::net::connect::{classify, connect};
use crate::state::{CheckFailure, ConnectError, ConnectFailure};

mod channel;
mod ending;
mod exchange;
mod http;
pub mod tls;
mod udp;

use channel::Channel;
pub use ending::Ending;
pub use tls::{TlsClient, TlsClients, TlsFault};

/// Where a check goes, and what it does there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// With the port that is checked.
    pub address: Address,
    /// What is done.
    pub probe: Arc<Probe>,
}

/// How a check went.
#[derive(Debug)]
pub struct Probed {
    /// The verdict.
    pub result: Result<(), CheckFailure>,
    /// What is left to be closed, which takes a backend that is well no time.
    pub ending: Option<Ending>,
}

impl Target {
    /// Checks once. `tls` belongs to the probe's handshake, where it has one.
    pub async fn check(&self, tls: Option<&TlsClient>, timeout: Duration) -> Probed {
        let deadline = Instant::now() + timeout;
        if let Probe::Udp(exchange) = &*self.probe {
            let result = udp::check(&self.address, exchange, deadline).await;
            return Probed { result, ending: None };
        }
        let mut channel = match connect(&self.address, timeout).await {
            Ok(socket) => Channel::new(socket),
            Err(error) => return Probed { result: Err(no_connection(error)), ending: None },
        };
        let mut heard = false;
        let talk = self.talk(&mut channel, tls, &mut heard);
        let result = match timeout_at(deadline, talk).await {
            Ok(result) => result,
            Err(_) if heard => Err(CheckFailure::Unexpected),
            Err(_) => Err(CheckFailure::Silent),
        };
        let answered = matches!(result, Ok(()) | Err(CheckFailure::Status(_)));
        let answer_first = answered && matches!(*self.probe, Probe::Http(_));
        Probed { result, ending: Some(Ending::new(channel, answer_first)) }
    }

    /// All that comes after connecting. `heard` is whether something came that might have been
    /// what is expected, but was not.
    async fn talk(
        &self,
        channel: &mut Channel,
        tls: Option<&TlsClient>,
        heard: &mut bool,
    ) -> Result<(), CheckFailure> {
        channel.shake_hands(tls).await?;
        match &*self.probe {
            Probe::Tls(_) => Ok(()),
            Probe::Http(http) => http::talk(channel, http, &self.address).await,
            Probe::Tcp(exchange) | Probe::Udp(exchange) => {
                exchange::talk(channel, exchange, heard).await
            }
        }
    }
}

fn no_connection(error: ConnectError) -> CheckFailure {
    match error {
        ConnectError { reason: ConnectFailure::Other, ours: true, .. } => CheckFailure::Shortage,
        ConnectError { reason, .. } => CheckFailure::Connect(reason),
    }
}

/// Why an established connection failed.
fn lost(error: &io::Error) -> CheckFailure {
    match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => CheckFailure::Reset,
        _ => no_connection(classify(error)),
    }
}

#[cfg(test)]
mod tests;
