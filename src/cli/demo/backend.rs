//! A small HTTP/1 server that says its name, and can fail and come back.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::{JoinHandle, JoinSet};

/// The response header with the backend's name.
pub(super) const NAME_HEADER: &str = "x-backend";

/// One server, running or not.
#[derive(Debug)]
pub struct DemoBackend {
    name: &'static str,
    address: SocketAddr,
    running: Option<JoinHandle<()>>,
}

impl DemoBackend {
    /// Listens on a loopback port that the kernel chooses.
    pub async fn start(name: &'static str) -> io::Result<DemoBackend> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let running = Some(tokio::spawn(serve(listener, name)));
        Ok(DemoBackend { name, address, running })
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes the port and every connection; returns when that is done.
    pub async fn kill(&mut self) {
        if let Some(task) = self.running.take() {
            task.abort();
            // It says that the task was cancelled, which is what we want.
            let _ = task.await;
        }
    }

    /// Listens on the same port again.
    pub fn revive(&mut self) -> io::Result<()> {
        let socket = TcpSocket::new_v4()?;
        // Connections of before are in TIME_WAIT.
        socket.set_reuseaddr(true)?;
        socket.bind(self.address)?;
        self.running = Some(tokio::spawn(serve(socket.listen(128)?, self.name)));
        Ok(())
    }
}

async fn serve(listener: TcpListener, name: &'static str) {
    // Dropped with this future, and the connections with it.
    let mut connections = JoinSet::new();
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            let answer = service_fn(move |request| async move { answer(&request, name) });
            connections.spawn(async move {
                // A client that goes away is none of the demo's business.
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
) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = format!("This is {name}. You asked for {}\n", request.uri().path());
    let mut response = Response::new(Full::new(Bytes::from(body)));
    let headers = response.headers_mut();
    let kind = hyper::header::HeaderValue::from_static("text/plain; charset=utf-8");
    headers.insert(CONTENT_TYPE, kind);
    headers.insert(NAME_HEADER, hyper::header::HeaderValue::from_static(name));
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::super::traffic::request;
    use super::*;

    #[tokio::test]
    async fn fails_and_comes_back_on_the_same_port() {
        let mut backend = DemoBackend::start("b7").await.unwrap();
        let address = crate::address::Address::Ip(backend.address());
        assert_eq!(request(&address).await.unwrap(), "b7");
        let mut open = tokio::net::TcpStream::connect(backend.address()).await.unwrap();
        backend.kill().await;
        let mut rest = Vec::new();
        // Closed or reset, but over.
        let _ = tokio::io::AsyncReadExt::read_to_end(&mut open, &mut rest).await;
        assert!(rest.is_empty());
        assert!(request(&address).await.is_err());
        backend.revive().unwrap();
        assert_eq!(request(&address).await.unwrap(), "b7");
    }
}
