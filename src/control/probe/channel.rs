//! A connection to a backend, as bytes, with or without TLS.

use std::io::{self, Read, Write};

use rustls::ClientConnection;
use tokio::task::coop::consume_budget;

use super::lost;
use super::tls::{TlsClient, failure};
use crate::net::Socket;
use crate::state::CheckFailure;
use crate::sys;

/// A connection, on which TLS may be spoken.
#[derive(Debug)]
pub(super) struct Channel {
    socket: Socket,
    tls: Option<Box<ClientConnection>>,
}

impl Channel {
    pub(super) fn new(socket: Socket) -> Self {
        Channel { socket, tls: None }
    }

    /// Shakes hands, where there is a `client` to do so.
    pub(super) async fn shake_hands(
        &mut self,
        client: Option<&TlsClient>,
    ) -> Result<(), CheckFailure> {
        let Some(client) = client else { return Ok(()) };
        let tls = client.connection().map_err(|error| failure(&error))?;
        self.tls = Some(Box::new(tls));
        while self.is_handshaking() {
            self.flush().await?;
            if self.is_handshaking() {
                self.receive().await?;
            }
        }
        self.flush().await
    }

    fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) -> Result<(), CheckFailure> {
        if let Some(tls) = &mut self.tls {
            // A check's few bytes are below what rustls takes unsent (64 KiB).
            tls.writer().write_all(bytes).map_err(|error| lost(&error))?;
            return self.flush().await;
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            self.socket.ready_to_write().await.map_err(|error| lost(&error))?;
            let written = self.socket.write(rest).map_err(|error| lost(&error))?;
            rest = rest.get(written.unwrap_or(0)..).unwrap_or_default();
        }
        Ok(())
    }

    /// Reads into `buffer`, which is not empty; 0 at the end of the stream.
    pub(super) async fn read(&mut self, buffer: &mut [u8]) -> Result<usize, CheckFailure> {
        loop {
            let Some(tls) = &mut self.tls else {
                self.socket.ready_to_read().await.map_err(|error| lost(&error))?;
                match self.socket.read(buffer).map_err(|error| lost(&error))? {
                    Some(read) => return Ok(read),
                    None => continue,
                }
            };
            match tls.reader().read(buffer) {
                Ok(read) => return Ok(read),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Cut off without close_notify: the end all the same.
                Err(_) => return Ok(0),
            }
            // An answer may be owed before the next record comes, to a KeyUpdate for example.
            self.flush().await?;
            self.receive().await?;
        }
    }

    /// Says that nothing more will come: `close_notify` where TLS is spoken, then FIN. The socket,
    /// for what still comes from the other side.
    pub(super) async fn finish(&mut self) -> io::Result<&mut Socket> {
        if let Some(tls) = self.tls.as_mut().filter(|tls| !tls.is_handshaking()) {
            tls.send_close_notify();
            // A backend that takes nothing any more cannot be told.
            let _untold = self.flush().await;
        }
        sys::socket::shut_write(&self.socket)?;
        Ok(&mut self.socket)
    }

    /// Sends what TLS wants to be sent.
    async fn flush(&mut self) -> Result<(), CheckFailure> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        while tls.wants_write() {
            self.socket.ready_to_write().await.map_err(|error| lost(&error))?;
            match tls.write_tls(&mut Unblocked(&mut self.socket)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(lost(&error)),
            }
        }
        Ok(())
    }

    /// Waits for bytes, and takes in the TLS records in them.
    async fn receive(&mut self) -> Result<(), CheckFailure> {
        // A backend that never stops to send must not keep the timeout from being noticed.
        consume_budget().await;
        let Some(tls) = &mut self.tls else { return Ok(()) };
        self.socket.ready_to_read().await.map_err(|error| lost(&error))?;
        match tls.read_tls(&mut Unblocked(&mut self.socket)) {
            Ok(0) if tls.is_handshaking() => return Err(CheckFailure::Closed),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(lost(&error)),
        }
        if let Err(error) = tls.process_new_packets() {
            // The backend should know why, but whether it does changes nothing.
            let _unsaid = self.flush().await;
            return Err(failure(&error));
        }
        Ok(())
    }
}

/// A socket as rustls reads and writes one.
struct Unblocked<'a>(&'a mut Socket);

impl Read for Unblocked<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)?.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }
}

impl Write for Unblocked<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)?.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
