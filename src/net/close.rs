//! Ending a connection that we, not a peer, decided to end.

use tokio::time::timeout;

use super::Socket;
use crate::limits::LINGER;
use crate::sys;

/// Closes by FIN. Closing a socket with unread bytes would send RST, which can destroy what the
/// peer has not read yet; so what it sends is thrown away until it closes too, or [`LINGER`] is
/// over.
pub async fn by_fin(mut socket: Socket) {
    if sys::socket::shut_write(&socket).is_err() {
        return; // gone already
    }
    let drain = async {
        loop {
            match sys::socket::discard(&socket) {
                Ok(0) => return,
                Ok(_) => {}
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                    socket.readable = false;
                    if socket.ready_to_read().await.is_err() {
                        return;
                    }
                }
                Err(_) => return,
            }
            tokio::task::coop::consume_budget().await;
        }
    };
    // The end of LINGER is as good an end as the peer's FIN.
    let _ended = timeout(LINGER, drain).await;
}

/// Closes by RST.
pub fn by_reset(socket: impl std::os::fd::AsFd) {
    // Fails only on a socket that is gone, which needs no reset.
    let _gone = sys::socket::reset_on_close(socket);
}
