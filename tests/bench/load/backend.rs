//! One thread that answers every kind of request, and one for datagrams.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::{ANSWER_BYTES, BULK, KEPT, REQUEST_BYTES};

const BACKLOG: u32 = 8192;
/// More than the longest hello.
const FIRST_BYTES: usize = 4096;
const BULK_BYTES: usize = 256 * 1024;

/// Prints the port, and serves until it is killed.
pub fn serve() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    runtime.expect("a runtime").block_on(accept()).expect("sockets");
}

async fn accept() -> io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(([127, 0, 0, 1], 0).into())?;
    let listener = socket.listen(BACKLOG)?;
    let address = listener.local_addr()?;
    // Datagrams at the same port.
    let datagrams = std::net::UdpSocket::bind(address)?;
    std::thread::spawn(move || super::datagrams::serve(&datagrams));
    println!("{}", address.port());
    loop {
        let (stream, _) = listener.accept().await?;
        // A client that leaves early is the client's to complain of.
        tokio::spawn(async { answer(stream).await.ok() });
    }
}

async fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut first = [0; FIRST_BYTES];
    let received = stream.read(&mut first).await?;
    match first[..received].first() {
        // An idle connection or a check.
        None => Ok(()),
        Some(&BULK) => {
            let bytes = vec![b'.'; BULK_BYTES];
            loop {
                stream.write_all(&bytes).await?;
            }
        }
        Some(&KEPT) => loop {
            stream.write_all(&[b'.'; ANSWER_BYTES]).await?;
            stream.read_exact(&mut first[..REQUEST_BYTES]).await?;
        },
        Some(_) => stream.write_all(&[b'.'; ANSWER_BYTES]).await,
    }
}
