//! The demo's clients: each request is a connection of its own, as a layer-4 balancer counts.

use std::io;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::PACE;
use super::backend::NAME_HEADER;
use crate::address::Address;

/// A request that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(5);

/// The largest answer read; the demo's backends send a few hundred bytes.
const ANSWER: u64 = 64 * 1024;

/// Requests under way, at most: `PATIENCE` over `PACE`, and a few.
pub(super) const IN_FLIGHT: usize = 128;

/// How one request ended.
#[derive(Debug)]
pub(super) struct Finished {
    pub at: Instant,
    /// The name of the backend that answered.
    pub result: io::Result<String>,
}

/// Sends requests at an even pace until the receiver is dropped.
pub(super) async fn generate(address: Address, finished: mpsc::Sender<Finished>) {
    let mut ticks = interval(PACE);
    // After a pause of the machine we do not want a burst.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !finished.is_closed() {
        ticks.tick().await;
        let Ok(slot) = finished.clone().reserve_owned().await else { return };
        let address = address.clone();
        tokio::spawn(async move {
            let result = timeout(PATIENCE, request(&address)).await;
            let result = result.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            slot.send(Finished { at: Instant::now(), result });
        });
    }
}

/// One request on a new connection; the name of who answered.
pub(super) async fn request(address: &Address) -> io::Result<String> {
    match address {
        Address::Ip(address) => exchange(TcpStream::connect(address).await?).await,
        Address::Unix(path) => exchange(UnixStream::connect(path).await?).await,
    }
}

async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<String> {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: demo\r\nConnection: close\r\n\r\n").await?;
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
    use super::*;

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
