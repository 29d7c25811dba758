//! The demo's DNS clients: each question comes from a port of its own and is asked again while
//! nobody answers, as resolvers do. Over UDP that is how a client gets over a server's death.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::names::{HEADER, TXT, ZONE};
use super::traffic::{Finished, Kind};

/// Between two questions: five a second.
const PACE: Duration = Duration::from_millis(200);

/// A question is asked again after this time without an answer.
pub(super) const AGAIN: Duration = Duration::from_millis(250);

/// So often at most; then it has failed.
const ATTEMPTS: u32 = 8;

/// Asks questions at an even pace until the receiver is dropped.
pub(super) async fn generate(entrance: SocketAddr, finished: mpsc::Sender<Finished>) {
    let mut ticks = interval(PACE);
    // After a pause of the machine we do not want a burst.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for id in (0..=u16::MAX).cycle() {
        ticks.tick().await;
        let Ok(slot) = finished.clone().reserve_owned().await else { return };
        tokio::spawn(async move {
            let (result, again) = ask(entrance, id).await;
            slot.send(Finished { kind: Kind::Question, at: Instant::now(), result, again });
        });
    }
}

/// Asks who answers; the name of that server, and how often it was asked again.
pub(super) async fn ask(entrance: SocketAddr, id: u16) -> (io::Result<String>, u32) {
    let question = question(id, &format!("q{id}.{ZONE}"), TXT);
    let connect = async {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        socket.connect(entrance).await?;
        io::Result::Ok(socket)
    };
    let socket = match connect.await {
        Ok(socket) => socket,
        Err(error) => return (Err(error), 0),
    };
    for again in 0..ATTEMPTS {
        match timeout(AGAIN, attempt(&socket, &question)).await {
            Ok(result) => return (result, again),
            Err(_) => continue,
        }
    }
    (Err(io::ErrorKind::TimedOut.into()), ATTEMPTS - 1)
}

async fn attempt(socket: &UdpSocket, question: &[u8]) -> io::Result<String> {
    socket.send(question).await?;
    let mut answer = [0; 512];
    let length = socket.recv(&mut answer).await?;
    let name = answer.get(..length).and_then(|answer| who(question, answer));
    name.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// A question for records of this type.
pub(super) fn question(id: u16, name: &str, kind: u16) -> Vec<u8> {
    let mut out = [&id.to_be_bytes()[..], &[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]].concat();
    for label in name.split('.') {
        out.push(label.len() as u8);
        out.extend(label.as_bytes());
    }
    out.push(0);
    out.extend([kind.to_be_bytes(), [0, 1]].concat());
    out
}

/// Who says to have answered the question; `None` if this is no such answer to it.
fn who(question: &[u8], answer: &[u8]) -> Option<String> {
    let same = answer.get(..2) == question.get(..2);
    let repeated = answer.get(HEADER..question.len()) == question.get(HEADER..);
    let code = answer.get(3)? & 15;
    // A reference to the name, type, class, time, length; then the text and its own length.
    let text = answer.get(question.len() + 13..).filter(|_| same && repeated && code == 0)?;
    std::str::from_utf8(text).ok()?.strip_prefix("answered by ").map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::super::names::NameServer;
    use super::*;

    #[tokio::test]
    async fn a_question_outlives_its_server() {
        let mut server = NameServer::start("d-1", Ipv4Addr::new(192, 0, 2, 1)).await.unwrap();
        let (name, again) = ask(server.address, 7).await;
        assert_eq!((name.unwrap().as_str(), again), ("d-1", 0));
        // Who is told at once that nobody listens does not wait.
        server.stop().await;
        let error = ask(server.address, 8).await.0.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        server.revive().await.unwrap();
        assert_eq!(ask(server.address, 9).await.0.unwrap(), "d-1");
    }

    #[tokio::test]
    async fn a_question_that_nobody_hears_is_asked_again() {
        let deaf = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let asked = tokio::spawn(ask(deaf.local_addr().unwrap(), 7));
        let mut buffer = [0; 512];
        let (length, first) = deaf.recv_from(&mut buffer).await.unwrap();
        let question = buffer[..length].to_vec();
        let (length, second) = deaf.recv_from(&mut buffer).await.unwrap();
        assert_eq!((&buffer[..length], first), (&question[..], second));
        // An answer to another question is no answer.
        let mut answer = question.clone();
        answer[2] = 0x85;
        answer[1] ^= 1;
        deaf.send_to(&answer, first).await.unwrap();
        let (result, again) = asked.await.unwrap();
        assert_eq!((result.unwrap_err().kind(), again), (io::ErrorKind::InvalidData, 1));
    }
}
