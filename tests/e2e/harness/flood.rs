//! Clients that send as fast as the machine can.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::{Socket, Type};

use super::stream::socket_address;

/// Goes on until it is dropped, whether anybody listens there or not.
#[derive(Debug)]
pub struct Flood {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Flood {
    /// So many threads connect to `address` and reset.
    pub fn start(address: &str, threads: usize) -> Self {
        let address = socket_address(address);
        Self::of(threads, || {
            let address = address.clone();
            move || {
                let kind = Type::STREAM.nonblocking();
                let socket = Socket::new(address.domain(), kind, None).unwrap();
                // It is under way, or refused: both are fine.
                let _under_way = socket.connect(&address);
                socket.set_linger(Some(Duration::ZERO)).unwrap();
            }
        })
    }

    /// So many threads, each with a socket, send datagrams to `address`.
    pub fn of_datagrams(address: &str, threads: usize) -> Self {
        Self::of(threads, || {
            let (address, socket) = (address.to_owned(), UdpSocket::bind("127.0.0.1:0").unwrap());
            move || {
                // Refused when the listener is gone.
                let _lost = socket.send_to(b"flood", &address);
            }
        })
    }

    fn of<Act: Fn() + Send + 'static>(threads: usize, act: impl Fn() -> Act) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let client = |_| {
            let (act, stop) = (act(), stop.clone());
            std::thread::spawn(move || {
                while !stop.load(Relaxed) {
                    act();
                }
            })
        };
        Flood { threads: (0..threads).map(client).collect(), stop }
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the flood failed");
        }
    }
}
