//! Taking connections off one listening socket, for one worker.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use rustix::io::Errno;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::account::Account;
use super::session::Accepted;
use super::worker::Worker;
use crate::config::Protocol;
use crate::limits::{ACCEPT_BATCH, ACCEPT_PAUSE, RETIRE};
use crate::net::{close, listen};
use crate::snapshot::{ListenSocket, Listener};
use crate::state::{Process, Termination};
use crate::sys::socket::{TcpOptions, set_tcp_options};

/// A listening socket as its worker holds it.
pub(super) struct Acceptor {
    pub socket: Arc<ListenSocket>,
    /// What its connections get; a reload replaces it.
    listener: RefCell<Arc<Listener>>,
    /// It takes what is waiting, then closes.
    retired: Cell<bool>,
    /// The listener was replaced, whose options are to be set.
    renewed: Cell<bool>,
    news: Notify,
    task: Cell<Option<JoinHandle<()>>>,
}

impl Acceptor {
    /// Starts to accept, until retired.
    pub fn start(
        worker: &Rc<Worker>,
        socket: &Arc<ListenSocket>,
        listener: &Arc<Listener>,
    ) -> io::Result<Rc<Self>> {
        let fd = socket.take(worker.index).ok_or(io::ErrorKind::NotConnected)?;
        let fd = crate::sys::event::register(fd)?;
        let acceptor = Rc::new(Acceptor {
            socket: socket.clone(),
            listener: RefCell::new(listener.clone()),
            retired: Cell::new(false),
            renewed: Cell::new(false),
            news: Notify::new(),
            task: Cell::new(None),
        });
        let task = worker.spawn_lasting(acceptor.clone().run(worker.clone(), fd));
        acceptor.task.set(Some(task));
        Ok(acceptor)
    }

    /// Connections get this from now on.
    pub fn replace(&self, listener: &Arc<Listener>) {
        *self.listener.borrow_mut() = listener.clone();
        self.renewed.set(true);
        self.news.notify_one();
    }

    /// Accepted connections inherit them.
    fn set_options(&self, fd: &AsyncFd<OwnedFd>) {
        let listener = self.listener.borrow();
        let options = TcpOptions::from(&*listener.timeouts);
        let tcp = self.socket.local.ip().is_some();
        let set = if tcp { set_tcp_options(fd, &options) } else { Ok(()) };
        if let Err(error) = set {
            tracing::warn!(listener = %listener.name, %error, "cannot set TCP options");
        }
    }

    /// Takes what is waiting, then closes.
    pub fn retire(&self) {
        self.retired.set(true);
        self.news.notify_one();
    }

    /// Waits until a retired acceptor has closed.
    pub async fn finished(&self) {
        if let Some(task) = self.task.take() {
            // An error is a panic in the task, which has been reported as such.
            let _panicked = task.await;
        }
    }

    async fn run(self: Rc<Self>, worker: Rc<Worker>, fd: AsyncFd<OwnedFd>) {
        let mut give_up = None;
        loop {
            if self.renewed.take() {
                self.set_options(&fd);
            }
            if self.retired.get() {
                // A flood of clients must not keep a listener that is to go.
                let give_up = *give_up.get_or_insert_with(|| Instant::now() + RETIRE);
                if Instant::now() > give_up {
                    return;
                }
            }
            match self.take_batch(&worker, &fd) {
                Batch::Full => tokio::task::yield_now().await,
                Batch::Drained if self.retired.get() => return,
                Batch::Drained => {
                    tokio::select! {
                        ready = fd.readable() => match ready {
                            Ok(mut guard) => guard.clear_ready(),
                            Err(_) => return, // the runtime is ending
                        },
                        () = self.news.notified() => {}
                    }
                }
                Batch::Short(error) => {
                    let listener = self.listener.borrow().clone();
                    listener.state.accept_paused(worker.index);
                    let meanwhile = "accepting pauses; existing sessions go on";
                    worker.warn_of_shortage(&listener.name, &error, meanwhile);
                    if self.retired.get() {
                        return;
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn take_batch(&self, worker: &Rc<Worker>, fd: &AsyncFd<OwnedFd>) -> Batch {
        for _ in 0..ACCEPT_BATCH {
            match listen::accept(fd.get_ref(), &self.socket.local) {
                Ok((fd, client, local)) => {
                    let listener = self.listener.borrow().clone();
                    worker.exchange.serve(worker, listener, Accepted { fd, client, local });
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Batch::Drained,
                Err(error) if is_shortage(&error) => return Batch::Short(error),
                // The connection was gone before it was taken (accept(2) lists what this can be).
                Err(_) => {}
            }
        }
        Batch::Full
    }
}

enum Batch {
    /// More may be waiting.
    Full,
    /// Nothing was left.
    Drained,
    /// No descriptor or memory for another.
    Short(io::Error),
}

pub(super) fn is_shortage(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM))
}

/// Starts a session, or resets the connection if the process has as many as it may have.
pub(super) fn admit(worker: &Rc<Worker>, listener: Arc<Listener>, accepted: Accepted) {
    let account =
        Account::open(worker, &listener.state, accepted.client, &accepted.local, Protocol::Tcp);
    let Some(place) = Place::take(&worker.process) else {
        account.ends(Termination::Overload);
        // Counted before the client sees it.
        drop(account);
        return close::by_reset(&accepted.fd);
    };
    worker.start_session(accepted, listener, account, place);
}

/// One of the sessions that the process may have, given back when dropped.
pub(super) struct Place(Arc<Process>);

impl Place {
    /// One more, if there may be one.
    pub fn take(process: &Arc<Process>) -> Option<Place> {
        let before = process.sessions.0.fetch_add(1, Relaxed);
        let place = Place(process.clone());
        (before < process.max_sessions.load(Relaxed)).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.sessions.0.fetch_sub(1, Relaxed);
    }
}
