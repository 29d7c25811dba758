//! A small HTTP client for the admin server: one request, one connection, one deadline.

use std::io::{self, Write as _};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONNECTION, HOST};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use super::args::Admin;
use crate::address::Address;
use crate::observe::auth::Token;

/// For everything but what the server itself waits for.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The largest answer read; the status of a hundred thousand backends is less.
const ANSWER: usize = 64 * 1024 * 1024;

/// Knows where the admin server is.
#[derive(Debug)]
pub struct Client {
    address: Address,
    token: Option<Token>,
}

/// What it answered.
#[derive(Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub body: Bytes,
}

impl Client {
    pub fn new(args: &Admin) -> anyhow::Result<Client> {
        let read = |path: &std::path::PathBuf| {
            Token::read(path).with_context(|| format!("cannot read {}", path.display()))
        };
        let token = args.token_file.as_ref().map(read).transpose()?;
        Ok(Client { address: args.address.clone(), token })
    }

    pub fn get(&self, path: &str) -> anyhow::Result<Reply> {
        self.request(Method::GET, path, String::new(), TIMEOUT)
    }

    /// `wait`: how long the server may take to do it.
    pub fn post(&self, path: &str, body: String, wait: Duration) -> anyhow::Result<Reply> {
        self.request(Method::POST, path, body, wait + TIMEOUT)
    }

    pub fn delete(&self, path: &str) -> anyhow::Result<Reply> {
        self.request(Method::DELETE, path, String::new(), TIMEOUT)
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: String,
        timeout: Duration,
    ) -> anyhow::Result<Reply> {
        let request = self.build(method, path, body)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let exchange = async { tokio::time::timeout(timeout, self.exchange(request)).await };
        runtime.block_on(exchange).unwrap_or_else(|_| {
            Err(anyhow!("{} did not answer within {} s", self.address, timeout.as_secs()))
        })
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> anyhow::Result<Reply> {
        match &self.address {
            Address::Ip(address) => {
                let stream = TcpStream::connect(address).await;
                self.send(stream.map_err(|e| self.unreachable(e))?, request).await
            }
            Address::Unix(socket) => {
                let stream = UnixStream::connect(socket).await;
                self.send(stream.map_err(|e| self.unreachable(e))?, request).await
            }
        }
    }

    async fn send<S>(&self, stream: S, request: Request<Full<Bytes>>) -> anyhow::Result<Reply>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let no_http = || format!("{} does not answer as an admin server", self.address);
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection);
        let answer = sender.send_request(request).await.with_context(no_http)?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER).collect().await;
        let body = body.map_err(|error| anyhow!(error)).with_context(no_http)?.to_bytes();
        connection.abort();
        Ok(Reply { status, body })
    }

    fn build(
        &self,
        method: Method,
        path: &str,
        body: String,
    ) -> anyhow::Result<Request<Full<Bytes>>> {
        let host = self.address.ip().map_or("localhost".to_owned(), |address| address.to_string());
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, host)
            .header(CONNECTION, "close")
            .header("x-pointsman", "1");
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {}", token.as_str()));
        }
        Ok(request.body(Full::from(body))?)
    }

    fn unreachable(&self, error: io::Error) -> anyhow::Error {
        let address = &self.address;
        match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => anyhow!(
                "nothing answers on {address}: is pointsman running with `admin` configured?"
            ),
            _ => anyhow!("cannot connect to {address}: {error}"),
        }
    }
}

/// A name as part of a path: percent-encoded (RFC 3986, section 2.1) but for what never needs it.
pub fn encode(name: &str) -> String {
    let mut encoded = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => encoded += &format!("%{byte:02X}"),
        }
    }
    encoded
}

impl Reply {
    /// The same if it says 200, else the error it carries.
    pub fn success(self) -> anyhow::Result<Reply> {
        if self.status == StatusCode::OK {
            return Ok(self);
        }
        let json: serde_json::Value = serde_json::from_slice(&self.body).unwrap_or_default();
        match json["error"].as_str() {
            Some(error) => bail!("the admin server said {}: {error}", self.status),
            None => bail!("the admin server said {}", self.status),
        }
    }

    pub fn json<T: DeserializeOwned>(&self) -> anyhow::Result<T> {
        serde_json::from_slice(&self.body).context("the admin server's answer is not understood")
    }

    /// Prints it, as it is or for people.
    pub fn print<T: DeserializeOwned>(
        &self,
        json: bool,
        render: impl FnOnce(&T) -> String,
    ) -> anyhow::Result<()> {
        let mut stdout = io::stdout().lock();
        if json {
            stdout.write_all(&self.body)?;
        } else {
            stdout.write_all(render(&self.json()?).as_bytes())?;
        }
        Ok(stdout.flush()?)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread::JoinHandle;

    use super::*;

    fn client(address: Address) -> Client {
        Client::new(&Admin { address, token_file: None }).unwrap()
    }

    /// Answers one request with these bytes; the request is the thread's result.
    fn server(answer: &'static str) -> (Address, JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Ip(listener.local_addr().unwrap());
        let thread = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                request.push(byte[0]);
            }
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8(request).unwrap()
        });
        (address, thread)
    }

    #[test]
    fn request_carries_what_the_server_asks_for() {
        let (address, thread) = server("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
        let reply = client(address.clone())
            .post("/api/v1/reload", "{}".to_owned(), Duration::ZERO)
            .unwrap();
        assert_eq!(reply.success().unwrap().body, "hi");
        let request = thread.join().unwrap();
        assert!(request.starts_with("POST /api/v1/reload HTTP/1.1\r\n"), "{request}");
        assert!(request.contains("x-pointsman: 1\r\n"), "{request}");
        assert!(request.contains(&format!("host: {address}\r\n")), "{request}");
    }

    #[test]
    fn errors_say_what_to_do() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let closed = Address::Ip(listener.local_addr().unwrap());
        drop(listener);
        for address in [closed, Address::Unix("/nonexistent/socket".into())] {
            let error = client(address.clone()).get("/livez").unwrap_err().to_string();
            let expected = format!(
                "nothing answers on {address}: is pointsman running with `admin` configured?"
            );
            assert_eq!(error, expected);
        }
        let (address, _thread) = server("SSH-2.0-nope\r\n");
        let error = client(address).get("/livez").unwrap_err().to_string();
        assert!(error.ends_with("does not answer as an admin server"), "{error}");
        let (address, _thread) =
            server("HTTP/1.1 403 Forbidden\r\nContent-Length: 15\r\n\r\n{\"error\":\"why\"}");
        let error = client(address).get("/").unwrap().success().unwrap_err().to_string();
        assert_eq!(error, "the admin server said 403 Forbidden: why");
    }
}
