//! Clients that connect and reset, as fast as the machine can.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::{Socket, Type};

use super::stream::socket_address;

/// Goes on until it is dropped.
#[derive(Debug)]
pub struct Flood {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Flood {
    /// So many threads flood `address`, whether anybody listens there or not.
    pub fn start(address: &str, threads: usize) -> Self {
        let (address, stop) = (socket_address(address), Arc::new(AtomicBool::new(false)));
        let client = |_| {
            let (address, stop) = (address.clone(), stop.clone());
            std::thread::spawn(move || {
                while !stop.load(Relaxed) {
                    let kind = Type::STREAM.nonblocking();
                    let socket = Socket::new(address.domain(), kind, None).unwrap();
                    // It is under way, or refused: both are fine.
                    let _under_way = socket.connect(&address);
                    socket.set_linger(Some(Duration::ZERO)).unwrap();
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
