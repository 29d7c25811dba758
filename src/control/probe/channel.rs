//! A connection to a backend, with or without TLS.

use std::io::{self, Read, Write};

use rustls::ClientConnection;
use tokio::task::coop::consume_budget;

use super::lost;
use super::tls::{TlsClient, failure};
use crate::net::Socket;
use crate::state::CheckFailure;

/// Bytes to and from a backend.
pub(super) struct Channel<'a> {
    socket: &'a mut Socket,
    tls: Option<Box<ClientConnection>>,
}

impl<'a> Channel<'a> {
    pub(super) fn plain(socket: &'a mut Socket) -> Self {
        Channel { socket, tls: None }
    }

    /// Shakes hands, where there is a `client` to do so.
    pub(super) async fn open(
        socket: &'a mut Socket,
        client: Option<&TlsClient>,
    ) -> Result<Self, CheckFailure> {
        let Some(client) = client else { return Ok(Channel::plain(socket)) };
        let tls = client.connection().map_err(|error| failure(&error))?;
        let mut channel = Channel { socket, tls: Some(Box::new(tls)) };
        while channel.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
            channel.flush().await?;
            if channel.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
                channel.receive().await?;
            }
        }
        channel.flush().await?;
        Ok(channel)
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

    /// Says over TLS that nothing more will come.
    pub(super) async fn close(mut self) -> Result<(), CheckFailure> {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
        }
        self.flush().await
    }

    /// Sends what TLS wants to be sent.
    async fn flush(&mut self) -> Result<(), CheckFailure> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        while tls.wants_write() {
            self.socket.ready_to_write().await.map_err(|error| lost(&error))?;
            match tls.write_tls(&mut Unblocked(self.socket)) {
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
        match tls.read_tls(&mut Unblocked(self.socket)) {
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
