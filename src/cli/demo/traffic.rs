//! The demo's clients: each request is a connection of its own, as a layer-4 balancer counts, and
//! each verifies the certificate, so an answer proves that the right site gave it.

use std::io;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_rustls::TlsConnector;

use super::backend::NAME_HEADER;
use super::{PACE, SITES};
use crate::address::Address;

/// A request that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(5);

/// The largest answer read; the demo's backends send a few hundred bytes.
const ANSWER: u64 = 64 * 1024;

/// Requests under way, at most: `PATIENCE` over `PACE`, and a few.
pub(super) const IN_FLIGHT: usize = 128;

/// What clients of the demo want.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A page.
    Request,
    /// A record of the DNS.
    Question,
}

/// How one request or question ended.
#[derive(Debug)]
pub(super) struct Finished {
    pub kind: Kind,
    pub at: Instant,
    /// The name of the backend that answered.
    pub result: io::Result<String>,
    /// How often a question was asked again.
    pub again: u32,
}

/// Where requests go, and what verifies who answers.
#[derive(Clone)]
pub(super) struct Entrance {
    pub address: Address,
    pub tls: TlsConnector,
}

/// Sends requests to one site after another, at an even pace, until the receiver is dropped.
pub(super) async fn generate(entrance: Entrance, finished: mpsc::Sender<Finished>) {
    let mut ticks = interval(PACE);
    // After a pause of the machine we do not want a burst.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for site in SITES.iter().cycle() {
        if finished.is_closed() {
            return;
        }
        ticks.tick().await;
        let Ok(slot) = finished.clone().reserve_owned().await else { return };
        let entrance = entrance.clone();
        tokio::spawn(async move {
            let result = timeout(PATIENCE, request(&entrance, site.visited)).await;
            let result = result.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            slot.send(Finished { kind: Kind::Request, at: Instant::now(), result, again: 0 });
        });
    }
}

/// One request on a new connection; the name of who answered.
pub(super) async fn request(entrance: &Entrance, host: &str) -> io::Result<String> {
    let tls = &entrance.tls;
    match &entrance.address {
        Address::Ip(address) => exchange(TcpStream::connect(address).await?, tls, host).await,
        Address::Unix(path) => exchange(UnixStream::connect(path).await?, tls, host).await,
    }
}

/// Whether the one who answered had no certificate for the name that was asked for.
pub(super) fn is_wrong_certificate(error: &io::Error) -> bool {
    let error = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    matches!(error, Some(rustls::Error::InvalidCertificate(_)))
}

async fn exchange<S>(stream: S, tls: &TlsConnector, host: &str) -> io::Result<String>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let server = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let mut stream = tls.connect(server, stream).await?;
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.take(ANSWER).read_to_string(&mut answer).await?;
    name(&answer).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// The name in a whole, successful answer.
fn name(answer: &str) -> Option<String> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let mut lines = head.lines();
    let ok = lines.next()?.starts_with("HTTP/1.1 200 ");
    let name = lines.filter_map(|line| line.split_once(": ")).find(|(key, _)| *key == NAME_HEADER);
    Some(name?.1.to_owned()).filter(|_| ok && body.ends_with('\n'))
}

#[cfg(test)]
mod tests {
    use super::super::backend::DemoBackend;
    use super::super::certificates::Authority;
    use super::*;

    /// A site that answers for another one is found out.
    #[tokio::test]
    async fn certificates_are_verified() {
        let authority = Authority::new().unwrap();
        let tls = authority.acceptor(SITES[1].host).unwrap();
        let backend = DemoBackend::start("b1", &SITES[1], tls).await.unwrap();
        let address = Address::Ip(backend.address());
        let entrance = Entrance { address, tls: authority.connector().unwrap() };
        assert_eq!(request(&entrance, SITES[1].visited).await.unwrap(), "b1");
        let error = request(&entrance, SITES[0].visited).await.unwrap_err();
        assert!(is_wrong_certificate(&error), "{error}");
        let stranger = Authority::new().unwrap().connector().unwrap();
        let entrance = Entrance { tls: stranger, ..entrance };
        let error = request(&entrance, SITES[1].visited).await.unwrap_err();
        assert!(is_wrong_certificate(&error), "{error}");
        assert!(!is_wrong_certificate(&io::ErrorKind::ConnectionRefused.into()));
    }

    #[test]
    fn only_whole_successful_answers_count() {
        for (answer, expected) in [
            ("HTTP/1.1 200 OK\r\nx-backend: b1\r\n\r\nhello\n", Some("b1")),
            ("HTTP/1.1 200 OK\r\nx-backend: b1\r\n\r\nhel", None),
            ("HTTP/1.1 200 OK\r\nx-backend: b1\r\n", None),
            ("HTTP/1.1 500 Oh\r\nx-backend: b1\r\n\r\nhello\n", None),
            ("HTTP/1.1 200 OK\r\nserver: nginx\r\n\r\nhello\n", None),
            ("", None),
        ] {
            assert_eq!(name(answer).as_deref(), expected, "{answer:?}");
        }
    }
}
