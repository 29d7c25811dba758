//! The clean end of a check: a backend should have no reset in its log for it.

use std::io;

use tokio::task::coop::consume_budget;
use tokio::time::timeout;

use super::channel::Channel;
use crate::limits::{CHECK_DISCARD, LINGER};
use crate::net::Socket;
use crate::sys;

/// A connection that has served its check.
#[derive(Debug)]
pub struct Ending {
    channel: Channel,
    /// The backend is still answering, and will close by itself.
    answer_first: bool,
}

impl Ending {
    pub(super) fn new(channel: Channel, answer_first: bool) -> Self {
        Ending { channel, answer_first }
    }

    /// Closes by FIN. Closing a socket with unread bytes would send RST, and a FIN in the middle of
    /// its answer looks to an HTTP server like a client that gave up; so what the backend sends is
    /// thrown away first, up to [`CHECK_DISCARD`] bytes and for [`LINGER`].
    pub async fn close(mut self) {
        // A socket that is gone, or a backend that does not end: there is nothing more to wait for.
        let _ended = timeout(LINGER, self.end()).await;
    }

    async fn end(&mut self) -> io::Result<()> {
        let mut room = CHECK_DISCARD;
        let mut buffer = [0; 4096];
        while self.answer_first && room > 0 {
            match self.channel.read(&mut buffer).await {
                Ok(0) | Err(_) => break,
                Ok(bytes) => room = room.saturating_sub(bytes),
            }
            consume_budget().await;
        }
        discard(self.channel.finish().await?, &mut room).await
    }
}

/// Reads to the end of the stream, or of `room`.
async fn discard(socket: &mut Socket, room: &mut usize) -> io::Result<()> {
    while *room > 0 {
        match sys::socket::discard(&*socket) {
            Ok(0) => return Ok(()),
            Ok(bytes) => *room = room.saturating_sub(bytes),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                socket.readable = false;
                socket.ready_to_read().await?;
            }
            Err(error) => return Err(error),
        }
        consume_budget().await;
    }
    Ok(())
}
