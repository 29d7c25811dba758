//! Sending a hello to a backend that may not want it, before the two ends are relayed.
//!
//! The relay would pass the backend's FIN or RST on to the client. Here it is held back as long as
//! nothing but the hello has gone either way: then the hello can go to another backend, and the
//! client notices nothing.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Poll, Waker};

use tokio::time::{Instant, sleep_until};

use super::Socket;
use crate::sys;

/// What became of a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Bytes of it that were written.
    pub written: usize,
    /// The backend has ended the connection without a byte. If not, it is the relay's turn.
    pub declined: bool,
}

/// Writes `hello` to the backend and waits until that ends the connection without a byte, or there
/// is something for the relay to do: a byte of the backend; a byte, FIN or RST of the client; what
/// `ended` says; or the time is over. None of that is taken off its socket.
pub async fn offer(
    client: &mut Socket,
    backend: &mut Socket,
    hello: &[u8],
    until: Instant,
    ended: impl Fn(&Waker) -> bool,
) -> Offer {
    let mut timer = pin!(sleep_until(until));
    let mut written = 0;
    poll_fn(|cx| {
        let answer = |written, declined| Poll::Ready(Offer { written, declined });
        loop {
            if ended(cx.waker()) {
                return answer(written, false);
            }
            let mut news = client.watch(cx) | backend.watch(cx);
            if client.readable && (has_bytes(client) || client.is_ending()) {
                return answer(written, false);
            }
            if backend.readable && (has_bytes(backend) || backend.is_ending()) {
                return answer(written, !has_bytes(backend));
            }
            if written < hello.len() && backend.writable {
                match backend.write(&hello[written..]) {
                    Ok(count) => written += count.unwrap_or(0),
                    Err(_) => return answer(written, !has_bytes(backend)),
                }
                news = true;
            }
            if !news {
                return timer.as_mut().poll(cx).map(|()| Offer { written, declined: false });
            }
        }
    })
    .await
}

/// Whether something waits to be read; that it is readable may be old news.
fn has_bytes(socket: &mut Socket) -> bool {
    let some = sys::socket::waiting(&*socket) > 0;
    socket.readable = some || socket.is_ending();
    some
}
