//! A small name server that says its name, and can fail and come back (RFC 1035 section 4.1).

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

/// What it knows of, with all names below.
pub(super) const ZONE: &str = "example.test";

/// Types of records.
const A: u16 = 1;
pub(super) const TXT: u16 = 16;

/// Bytes before the question: identifier, flags, and four counts.
pub(super) const HEADER: usize = 12;

/// One server, running or not.
pub(super) struct NameServer {
    pub name: &'static str,
    /// The one that it gives to everybody who asks for an address.
    record: Ipv4Addr,
    pub address: SocketAddr,
    task: Option<JoinHandle<()>>,
}

impl NameServer {
    /// Receives on a loopback port that the kernel chooses.
    pub async fn start(name: &'static str, record: Ipv4Addr) -> io::Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut server = NameServer { name, record, address, task: None };
        server.revive().await?;
        Ok(server)
    }

    /// Closes the port; returns when that is done.
    pub async fn stop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
            // An error, since it was aborted.
            let _ended = task.await;
        }
    }

    /// Receives on the same port again.
    pub async fn revive(&mut self) -> io::Result<()> {
        let socket = UdpSocket::bind(self.address).await?;
        self.address = socket.local_addr()?;
        self.task = Some(tokio::spawn(serve(socket, self.name, self.record)));
        Ok(())
    }
}

async fn serve(socket: UdpSocket, name: &'static str, record: Ipv4Addr) {
    let mut buffer = [0; 512];
    loop {
        if let Ok((length, client)) = socket.recv_from(&mut buffer).await
            && let Some(answer) = buffer.get(..length).and_then(|q| answer(q, name, record))
        {
            // Who does not get it asks again.
            let _lost = socket.send_to(&answer, client).await;
        }
    }
}

/// The answer to a message; `None` if that is not one well-formed question.
fn answer(message: &[u8], server: &str, record: Ipv4Addr) -> Option<Vec<u8>> {
    if message.get(2)? & 0xf8 != 0 || message.get(4..6)? != [0, 1] {
        return None;
    }
    let (name, question) = question(message.get(HEADER..)?)?;
    let own = name == ZONE || name.strip_suffix(ZONE).is_some_and(|rest| rest.ends_with('.'));
    let (kind, of_internet) = match question.get(question.len() - 4..)? {
        &[high, low, 0, 1] => (u16::from_be_bytes([high, low]), true),
        _ => (0, false),
    };
    let text = format!("answered by {server}");
    let data = match kind {
        A if own && of_internet => record.octets().to_vec(),
        TXT if own && of_internet => [&[text.len() as u8], text.as_bytes()].concat(),
        _ => Vec::new(),
    };
    // An authoritative answer; NOERROR, or REFUSED.
    let flags = [0x84 | message.get(2)? & 1, if own { 0 } else { 5 }];
    let counts = [0, 1, 0, u8::from(!data.is_empty()), 0, 0, 0, 0];
    let mut out = [message.get(..2)?, &flags, &counts, question].concat();
    if !data.is_empty() {
        // The name is that of the question; it may be kept for no time.
        out.extend([0xc0, HEADER as u8]);
        out.extend(question.get(question.len() - 4..)?);
        out.extend([0, 0, 0, 0, 0, data.len() as u8]);
        out.extend(data);
    }
    Some(out)
}

/// The name that is asked for, in lower case, and the bytes of the question.
fn question(bytes: &[u8]) -> Option<(String, &[u8])> {
    let (mut labels, mut at) = (Vec::new(), 0);
    loop {
        let length = usize::from(*bytes.get(at)?);
        let label = bytes.get(at + 1..at + 1 + length).filter(|_| length < 64)?;
        at += 1 + length;
        if label.is_empty() {
            // Type and class follow.
            return Some((labels.join("."), bytes.get(..at + 4)?));
        }
        labels.push(label.escape_ascii().to_string().to_ascii_lowercase());
    }
}

#[cfg(test)]
mod tests {
    use super::super::questions::question;
    use super::*;

    #[test]
    fn answers_what_it_knows_and_refuses_the_rest() {
        let record = Ipv4Addr::new(192, 0, 2, 1);
        let text = b"\x0fanswered by d-1";
        for (name, kind, code, data) in [
            ("a.example.test", TXT, 0, &text[..]),
            ("EXAMPLE.test", A, 0, &[192, 0, 2, 1]),
            ("a.example.test", 28, 0, &[]),
            ("notexample.test", TXT, 5, &[]),
            ("example.com", A, 5, &[]),
        ] {
            let question = question(0x1234, name, kind);
            let answer = answer(&question, "d-1", record).unwrap();
            let count = u8::from(!data.is_empty());
            let header = [0x12, 0x34, 0x85, code, 0, 1, 0, count, 0, 0, 0, 0];
            let record = question.len() + usize::from(count) * 12;
            assert_eq!(answer[..HEADER], header, "{name}");
            assert_eq!(answer[HEADER..question.len()], question[HEADER..], "{name}");
            assert_eq!(answer[record..], *data, "{name}");
            for length in 0..question.len() {
                assert_eq!(super::answer(&question[..length], "d-1", Ipv4Addr::LOCALHOST), None);
            }
            let from_answer = super::answer(&answer, "d-1", Ipv4Addr::LOCALHOST);
            assert_eq!(from_answer, None, "{name}");
        }
    }
}
