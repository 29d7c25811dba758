//! The admin server: HTTP/1 on a TCP address or a unix socket.
//!
//! It shares a runtime with control, so everything a client can make it hold is bounded: the
//! connections at once, the time to send a request, the size of a body, the age of a connection.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

pub use super::api::Context;
use super::api::answer;
use super::auth::Peer;
use crate::address::Address;
use crate::limits::{ACCEPT_PAUSE, ADMIN_AGE, ADMIN_CONNECTIONS, ADMIN_READ};
use crate::repeat::Repeat;
use crate::sys::socket_file::SocketFile;

/// A bound socket that nobody answers on yet.
#[derive(Debug)]
pub struct AdminListener {
    socket: Bound,
    local: Address,
}

#[derive(Debug)]
enum Bound {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener, SocketFile),
}

/// Binds the address. A socket file that nobody answers on any more is replaced; the new one may
/// be opened by its owner alone.
pub fn bind(address: &Address) -> io::Result<AdminListener> {
    match address {
        Address::Ip(address) => {
            let listener = std::net::TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            let local = Address::Ip(listener.local_addr()?);
            Ok(AdminListener { socket: Bound::Tcp(listener), local })
        }
        Address::Unix(path) => {
            SocketFile::replace_stale(path)?;
            let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
            // The file gets the mode of the descriptor: it is never open to others, not even
            // between `bind` and a `chmod`.
            rustix::fs::fchmod(&socket, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)?;
            socket.bind(&SockAddr::unix(path)?)?;
            let file = SocketFile::of(path)?;
            socket.listen(ADMIN_CONNECTIONS as i32)?;
            socket.set_nonblocking(true)?;
            Ok(AdminListener { socket: Bound::Unix(socket.into(), file), local: address.clone() })
        }
    }
}

impl AdminListener {
    /// The address as bound: the kernel chose the port where 0 was asked for.
    pub fn local(&self) -> &Address {
        &self.local
    }
}

/// Serves until dropped, which closes every connection and removes the socket file.
///
/// # Errors
///
/// If the socket cannot be handed to the runtime that this runs on.
pub async fn serve(listener: AdminListener, context: Arc<Context>) -> io::Result<Infallible> {
    match listener.socket {
        Bound::Tcp(listener) => {
            let listener = TcpListener::from_std(listener)?;
            serve_from(context, || async {
                let (stream, remote) = listener.accept().await?;
                let peer = tcp_peer(remote, stream.local_addr()?);
                // Answers are written whole; waiting for more only delays them.
                stream.set_nodelay(true)?;
                Ok((stream, peer))
            })
            .await
        }
        Bound::Unix(listener, _file) => {
            let listener = UnixListener::from_std(listener)?;
            serve_from(context, || async {
                let (stream, _) = listener.accept().await?;
                Ok((stream, Peer::Unix))
            })
            .await
        }
    }
}

fn tcp_peer(remote: SocketAddr, local: SocketAddr) -> Peer {
    let canonical = |address: SocketAddr| -> IpAddr { address.ip().to_canonical() };
    Peer::Tcp { remote: canonical(remote), local: canonical(local) }
}

async fn serve_from<A, F, S>(context: Arc<Context>, accept: A) -> io::Result<Infallible>
where
    A: Fn() -> F,
    F: Future<Output = io::Result<(S, Peer)>>,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let places = Arc::new(Semaphore::new(ADMIN_CONNECTIONS));
    // Dropped with this future, and all connections with it.
    let mut connections = JoinSet::new();
    let mut failures = Repeat::new(Duration::from_secs(10));
    loop {
        // A place first: those without one wait in the kernel's queue.
        let place = places.clone().acquire_owned().await.map_err(io::Error::other)?;
        match accept().await {
            Ok((stream, peer)) => {
                let context = context.clone();
                connections.spawn(async move {
                    connection(stream, peer, context).await;
                    drop(place);
                });
            }
            Err(error) => {
                if let Some(suppressed) = failures.admit(Instant::now()) {
                    tracing::warn!(%error, suppressed, "admin server cannot accept");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn connection<S>(stream: S, peer: Peer, context: Arc<Context>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request| {
        let context = context.clone();
        async move { Ok::<_, Infallible>(answer(request, peer, context).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        // Also bounds the silence between two requests.
        .header_read_timeout(ADMIN_READ)
        .serve_connection(TokioIo::new(stream), service);
    let mut served = pin!(served);
    // What a client does wrong is its own affair: errors end the connection and nothing else.
    if timeout(ADMIN_AGE, served.as_mut()).await.is_err() {
        served.as_mut().graceful_shutdown();
        let _ = timeout(ADMIN_READ, served).await;
    }
}

#[cfg(test)]
mod tests;
