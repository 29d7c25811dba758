//! A small HTTPS server that says its name and whose certificate it has, and can fail and come
//! back.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::Site;

/// The response header with the backend's name.
pub(super) const NAME_HEADER: &str = "x-backend";

/// How long requests under way have when a server goes. What is cut off in the middle, no balancer
/// of connections can save, and the demo is about what it can.
const LINGER: Duration = Duration::from_millis(200);

/// One server, running or not.
pub struct DemoBackend {
    identity: Identity,
    address: SocketAddr,
    running: Option<Running>,
}

struct Running {
    /// Asks the task to end, also by being dropped.
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

/// What a server shows of itself.
#[derive(Clone)]
struct Identity {
    name: &'static str,
    site: &'static Site,
    tls: TlsAcceptor,
}

impl DemoBackend {
    /// Listens on a loopback port that the kernel chooses.
    pub async fn start(
        name: &'static str,
        site: &'static Site,
        tls: TlsAcceptor,
    ) -> io::Result<DemoBackend> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let identity = Identity { name, site, tls };
        let running = Some(Running::start(listener, identity.clone()));
        Ok(DemoBackend { identity, address, running })
    }

    pub fn name(&self) -> &'static str {
        self.identity.name
    }

    pub fn site(&self) -> &'static Site {
        self.identity.site
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes the port, and every connection after [`LINGER`]; returns when that is done.
    pub async fn stop(&mut self) {
        if let Some(Running { stop, task }) = self.running.take() {
            // Where it has ended by itself there is nothing to stop.
            let _ended = stop.send(());
            let _ended = task.await;
        }
    }

    /// Listens on the same port again.
    pub fn revive(&mut self) -> io::Result<()> {
        let socket = TcpSocket::new_v4()?;
        // Connections of before are in TIME_WAIT.
        socket.set_reuseaddr(true)?;
        socket.bind(self.address)?;
        self.running = Some(Running::start(socket.listen(128)?, self.identity.clone()));
        Ok(())
    }
}

impl Running {
    fn start(listener: TcpListener, identity: Identity) -> Self {
        let (stop, stopped) = oneshot::channel();
        Running { stop, task: tokio::spawn(serve(listener, identity, stopped)) }
    }
}

async fn serve(listener: TcpListener, identity: Identity, stopped: oneshot::Receiver<()>) {
    // Dropped with this future, and the connections with it.
    let mut connections = JoinSet::new();
    tokio::select! {
        _ = stopped => {}
        () = accept(&listener, &identity, &mut connections) => {}
    }
    drop(listener);
    let all = async { while connections.join_next().await.is_some() {} };
    let _late = timeout(LINGER, all).await;
}

async fn accept(listener: &TcpListener, identity: &Identity, connections: &mut JoinSet<()>) {
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            let Identity { name, site, tls } = identity.clone();
            let answer = service_fn(move |request| async move { answer(&request, name, site) });
            connections.spawn(async move {
                // A health check says nothing, and a client that goes away is none of the demo's
                // business.
                let Ok(stream) = tls.accept(stream).await else { return };
                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
            });
        }
        while connections.try_join_next().is_some() {}
        // A failing `accept` must not keep the others from running.
        tokio::task::yield_now().await;
    }
}

fn answer(
    request: &Request<Incoming>,
    name: &'static str,
    site: &'static Site,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (host, path) = (site.host, request.uri().path());
    let body = format!("This is {name} with the certificate of {host}. You asked for {path}\n");
    let mut response = Response::new(Full::new(Bytes::from(body)));
    let headers = response.headers_mut();
    let kind = hyper::header::HeaderValue::from_static("text/plain; charset=utf-8");
    headers.insert(CONTENT_TYPE, kind);
    headers.insert(NAME_HEADER, hyper::header::HeaderValue::from_static(name));
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::super::SITES;
    use super::super::certificates::Authority;
    use super::super::traffic::{Entrance, request};
    use super::*;

    #[tokio::test]
    async fn fails_and_comes_back_on_the_same_port() {
        let authority = Authority::new().unwrap();
        let (site, tls) = (&SITES[0], authority.acceptor(SITES[0].host).unwrap());
        let mut backend = DemoBackend::start("b7", site, tls).await.unwrap();
        let entrance = Entrance {
            address: crate::address::Address::Ip(backend.address()),
            tls: authority.connector().unwrap(),
        };
        assert_eq!(request(&entrance, site.visited).await.unwrap(), "b7");
        let mut open = tokio::net::TcpStream::connect(backend.address()).await.unwrap();
        backend.stop().await;
        let mut rest = Vec::new();
        // Closed or reset, but over.
        let _ = tokio::io::AsyncReadExt::read_to_end(&mut open, &mut rest).await;
        assert!(rest.is_empty());
        assert!(request(&entrance, site.visited).await.is_err());
        backend.revive().unwrap();
        assert_eq!(request(&entrance, site.visited).await.unwrap(), "b7");
    }
}
