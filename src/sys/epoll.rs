//! An epoll instance for the many sockets of one worker.
//!
//! Tokio keeps some hundred bytes a registered descriptor and wakes a task for each; here a worker
//! waits for one descriptor, this one, and asks it which sockets there is something on.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::limits::EPOLL_EVENTS;

/// Sockets watched for something to read, level-triggered: a socket is reported as long as there
/// is something.
///
/// Within tokio's `AsyncFd`, whose events are edges: clear its readiness *before* [`Epoll::wait`],
/// and come back without waiting for it until [`Epoll::wait`] reports nothing. What comes after
/// the readiness was cleared sets it again; what was left unread does not.
#[derive(Debug)]
pub struct Epoll(OwnedFd);

/// Room for what one [`Epoll::wait`] reports.
#[derive(Debug)]
pub struct Events([MaybeUninit<Event>; EPOLL_EVENTS]);

impl Default for Events {
    fn default() -> Self {
        Events([MaybeUninit::uninit(); EPOLL_EVENTS])
    }
}

impl Epoll {
    /// Watches nothing yet.
    ///
    /// # Errors
    ///
    /// No descriptor or memory is left.
    pub fn new() -> io::Result<Epoll> {
        Ok(Epoll(epoll::create(CreateFlags::CLOEXEC)?))
    }

    /// Registers this with the current runtime, to wait for readiness to read.
    ///
    /// # Errors
    ///
    /// The kernel refuses to watch it, for want of memory or beyond `max_user_watches`.
    #[allow(unsafe_code)]
    pub fn register(self) -> io::Result<AsyncFd<Epoll>> {
        // SAFETY: the descriptor is open until the `Epoll` is dropped, is the same all the time,
        // and the `AsyncFd` owns the `Epoll` from here on.
        let registered = unsafe { AsyncFd::register_with_interest(self, Interest::READABLE) };
        registered.map_err(|error| error.into_parts().1)
    }

    /// Watches `socket`, which is reported as `data`. An error pending on it is something to read.
    ///
    /// # Errors
    ///
    /// It is watched already, or the kernel refuses for want of memory or beyond
    /// `max_user_watches`.
    pub fn add(&self, socket: impl AsFd, data: u64) -> io::Result<()> {
        Ok(epoll::add(&self.0, socket, EventData::new_u64(data), EventFlags::IN)?)
    }

    /// Stops watching `socket`. Closing the only descriptor of a socket does the same.
    ///
    /// # Errors
    ///
    /// It is not watched.
    pub fn remove(&self, socket: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.0, socket)?)
    }

    /// The `data` of sockets that have something to read at this moment, [`EPOLL_EVENTS`] at most;
    /// the others' turn comes with the next call.
    ///
    /// # Errors
    ///
    /// A signal came first.
    pub fn wait<'a>(
        &self,
        events: &'a mut Events,
    ) -> io::Result<impl ExactSizeIterator<Item = u64> + 'a> {
        let now = Timespec::default();
        let (ready, _) = epoll::wait(&self.0, &mut events.0, Some(&now))?;
        Ok(ready.iter().map(|event| event.data.u64()))
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Epoll {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::time::Duration;

    fn pair() -> (UdpSocket, UdpSocket) {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        receiver.set_nonblocking(true).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        (sender, receiver)
    }

    fn ready(epoll: &Epoll) -> Vec<u64> {
        epoll.wait(&mut Events::default()).unwrap().collect()
    }

    #[test]
    fn a_socket_is_reported_as_long_as_there_is_something() {
        let epoll = Epoll::new().unwrap();
        let (sender, receiver) = pair();
        epoll.add(&receiver, 7 << 40).unwrap();
        assert!(epoll.add(&receiver, 8).is_err());
        assert!(ready(&epoll).is_empty());
        sender.send(b"a").unwrap();
        assert_eq!(ready(&epoll), [7 << 40]);
        assert_eq!(ready(&epoll), [7 << 40]);
        receiver.recv(&mut [0; 1]).unwrap();
        assert!(ready(&epoll).is_empty());
        sender.send(b"b").unwrap();
        epoll.remove(&receiver).unwrap();
        assert!(epoll.remove(&receiver).is_err());
        assert!(ready(&epoll).is_empty());
    }

    #[test]
    fn more_sockets_than_events_all_have_their_turn() {
        let epoll = Epoll::new().unwrap();
        let pairs: Vec<_> = (0..EPOLL_EVENTS * 3).map(|_| pair()).collect();
        for (data, (sender, receiver)) in (0..).zip(&pairs) {
            epoll.add(receiver, data).unwrap();
            sender.send(b"a").unwrap();
        }
        let mut seen: Vec<u64> = (0..3).flat_map(|_| ready(&epoll)).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..pairs.len() as u64).collect::<Vec<_>>());
    }

    /// Each of many sockets gets a datagram only once its last has been read, so that one missed
    /// event leaves the exchange hanging.
    #[test]
    fn within_tokio_no_event_is_missed() {
        const SOCKETS: usize = 3 * EPOLL_EVENTS / 2;
        const ROUNDS: usize = 300;
        let pairs: Vec<_> = (0..SOCKETS).map(|_| pair()).collect();
        let (senders, receivers): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        let (read, next) = std::sync::mpsc::channel::<usize>();
        let peer = std::thread::spawn(move || {
            for sender in &senders {
                sender.send(b"a").unwrap();
            }
            while let Ok(index) = next.recv() {
                senders[index].send(b"a").unwrap();
            }
        });
        let exchange = async {
            let epoll = Epoll::new().unwrap();
            for (data, receiver) in (0..).zip(&receivers) {
                epoll.add(receiver, data).unwrap();
            }
            let epoll = epoll.register().unwrap();
            let mut events = Events::default();
            let mut counts = vec![0; SOCKETS];
            while counts.iter().any(|&count| count < ROUNDS) {
                epoll.readable().await.unwrap().clear_ready();
                loop {
                    let ready = epoll.get_ref().wait(&mut events).unwrap();
                    if ready.len() == 0 {
                        break;
                    }
                    for index in ready.map(|data| usize::try_from(data).unwrap()) {
                        receivers[index].recv(&mut [0; 1]).unwrap();
                        counts[index] += 1;
                        if counts[index] < ROUNDS {
                            read.send(index).unwrap();
                        }
                    }
                    tokio::task::yield_now().await;
                }
            }
            drop(read);
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let in_time = async { tokio::time::timeout(Duration::from_secs(20), exchange).await };
        runtime.block_on(in_time).expect("an event was missed");
        peer.join().unwrap();
    }
}
