//! The UDP side of a worker: one loop over all its datagram sockets, and the flows they carry.
//!
//! ```text
//! datagram of a client → flow, or a new one: [preread] → route → pick → socket → sent on
//! datagram of a backend → the flow of its socket → sent back from where the client had sent to
//! ```
//!
//! A flow has neither a task nor a timer, and is not known to the runtime: all sockets are in one
//! epoll instance, which the runtime watches, and flows expire from the head of a list in order of
//! their last datagrams. Where a datagram goes is decided while it is in the buffers that all
//! share; only those of an unfinished QUIC hello are kept.

mod answers;
mod attach;
mod cargo;
mod door;
mod flow;
mod hello;
mod lanes;
mod preread;
mod room;

use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep_until;

use self::answers::Answers;
use self::door::Door;
use self::lanes::{LaneId, Lanes};
use super::worker::Worker;
use crate::limits::DATAGRAM_TURNS;
use crate::net::datagram::Listening;
use crate::snapshot::{ListenSocket, Listener};
use crate::state::Termination;
use crate::sys::epoll::{Epoll, Events};

/// The epoll instance that all datagram sockets of a worker are in.
type Watch = AsyncFd<Epoll>;

/// Marks the listening sockets among what epoll reports; the rest is the index of the door.
const DOOR: u64 = 1 << 63;

/// After how long drops of the kernel are counted when datagrams have come.
const DROPS: Duration = Duration::from_millis(500);

/// The way from a worker to its loop.
pub(super) struct Flows(mpsc::Sender<Order>);

/// The other end of that way.
pub(super) struct Orders(mpsc::Receiver<Order>);

enum Order {
    /// These are the listening sockets from now on; the sender hears when the others are closed.
    Serve(Vec<Wanted>, oneshot::Sender<()>),
    /// No flow is opened any more; those that are there go on.
    Close,
}

/// A listening socket and what its flows get.
pub(super) type Wanted = (Arc<ListenSocket>, Arc<Listener>);

/// A worker's way to its loop.
pub(super) fn flows() -> (Flows, Orders) {
    let (sender, receiver) = mpsc::channel(1);
    (Flows(sender), Orders(receiver))
}

impl Flows {
    /// Makes the listening sockets these. Returns when those that are not among them are closed.
    pub async fn set(&self, wanted: Vec<Wanted>) {
        let (done, is_done) = oneshot::channel();
        self.tell(Order::Serve(wanted, done)).await;
        // Without a loop there are no sockets.
        let _ended = is_done.await;
    }

    /// Opens no flow any more; those that are there go on.
    pub async fn close(&self) {
        self.tell(Order::Close).await;
    }

    async fn tell(&self, order: Order) {
        // The loop ends by a panic only, which stops the process.
        let _ended = self.0.send(order).await;
    }
}

impl Orders {
    /// Starts the loop.
    ///
    /// # Errors
    ///
    /// There is no epoll instance to be had.
    pub fn serve(self, worker: &Rc<Worker>) -> io::Result<()> {
        worker.spawn_lasting(Loop::new(worker)?.run(self));
        Ok(())
    }
}

/// What all doors work with.
struct Gear {
    worker: Rc<Worker>,
    lanes: Lanes,
    /// By index; the one at work is not among them meanwhile.
    doors: Vec<Option<Box<Door>>>,
    closing: bool,
}

impl Gear {
    /// Lets a door work, if there is one of this index.
    fn at_door<R>(
        &mut self,
        index: usize,
        act: impl FnOnce(&mut Door, &mut Gear) -> R,
    ) -> Option<R> {
        let mut door = self.doors.get_mut(index)?.take()?;
        let result = act(&mut door, self);
        self.doors[index] = Some(door);
        Some(result)
    }
}

struct Loop {
    watch: Rc<Watch>,
    gear: Gear,
    /// What is received, before it is sent on.
    answers: Answers,
    /// When drops of the kernel are to be counted, if datagrams have come.
    drops_due: Option<Instant>,
}

impl Loop {
    fn new(worker: &Rc<Worker>) -> io::Result<Self> {
        let watch = Rc::new(Epoll::new()?.register()?);
        let lanes = Lanes::new(watch.clone());
        let gear = Gear { worker: worker.clone(), lanes, doors: Vec::new(), closing: false };
        Ok(Loop { watch, gear, answers: Answers::default(), drops_due: None })
    }

    async fn run(mut self, mut orders: Orders) {
        let (watch, worker) = (self.watch.clone(), self.gear.worker.clone());
        let far = || tokio::time::Instant::now() + Duration::from_secs(3600);
        let mut events = Events::default();
        let mut timer = pin!(sleep_until(far()));
        let mut is_behind = false;
        loop {
            if let Some(due) = self.due()
                && due < timer.deadline().into_std()
            {
                timer.as_mut().reset(due.into());
            }
            tokio::select! {
                biased;
                // First, since in a flood the sockets always have something.
                Some(order) = orders.0.recv() => self.obey(order),
                () = worker.roll.ordered() => self.each_door(|door, gear| door.end_ordered(gear)),
                () = tokio::task::yield_now(), if is_behind => {}
                ready = watch.readable(), if !is_behind => match ready {
                    // Before the sockets are looked at: what comes then is a new event.
                    Ok(mut guard) => guard.clear_ready(),
                    Err(_) => return, // the runtime is ending
                },
                () = timer.as_mut() => timer.as_mut().reset(far()),
            }
            is_behind = self.turn(&mut events);
        }
    }

    /// Serves the sockets until nothing waits at any, or it is the others' turn: then true.
    fn turn(&mut self, events: &mut Events) -> bool {
        for _ in 0..DATAGRAM_TURNS {
            // Only a signal keeps it from being told, and then it is told again.
            let Ok(ready) = self.watch.clone().get_ref().wait(events) else { continue };
            let (now, none) = (Instant::now(), ready.len() == 0);
            ready.for_each(|event| self.serve(event, now));
            self.hand_back(now);
            self.expire(now);
            if none {
                return false;
            }
        }
        true
    }

    fn serve(&mut self, event: u64, now: Instant) {
        if event & DOOR != 0 {
            let index = usize::try_from(event & !DOOR).unwrap_or(usize::MAX);
            return self.take(index, now);
        }
        let id = LaneId::from_event(event);
        let Some(lane) = self.gear.lanes.get_mut(id) else { return };
        let index = lane.door;
        if !self.answers.have_room_for(lane) {
            self.hand_back(now);
        }
        let Loop { gear, answers, .. } = self;
        gear.at_door(index, |door, gear| door.answer(gear, answers, id, now));
    }

    /// Sends the answers that wait.
    fn hand_back(&mut self, now: Instant) {
        let Loop { gear, answers, .. } = self;
        if let Some(index) = answers.door() {
            gear.at_door(index, |door, gear| door.hand_back_all(gear, answers.iter(), now));
        }
        answers.clear();
    }

    fn take(&mut self, index: usize, now: Instant) {
        // Their flows are still there, and so is their room.
        self.hand_back(now);
        let Loop { gear, answers, .. } = self;
        let batch = answers.batch();
        let Some(received) = gear.at_door(index, |door, _| door.receive(batch)) else { return };
        self.drops_due.get_or_insert(now + DROPS);
        for arrival in received.into_iter().flatten() {
            let read = gear.at_door(index, |door, gear| {
                door.arrive(gear, &arrival, now);
                door.listener.reads_hello
            });
            if read == Some(true) {
                preread::keep_bound(gear);
            }
        }
    }

    fn expire(&mut self, now: Instant) {
        let count_drops = self.drops_due.is_some_and(|due| due <= now);
        if count_drops {
            self.drops_due = None;
        }
        self.each_door(|door, gear| {
            door.expire(gear, now);
            if count_drops {
                door.count_kernel_drops(gear);
            }
        });
    }

    fn due(&self) -> Option<Instant> {
        let doors = self.gear.doors.iter().flatten();
        doors.filter_map(|door| door.due()).chain(self.drops_due).min()
    }

    fn each_door(&mut self, mut act: impl FnMut(&mut Door, &mut Gear)) {
        for index in 0..self.gear.doors.len() {
            self.gear.at_door(index, &mut act);
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Close => self.gear.closing = true,
            Order::Serve(wanted, done) => {
                self.set(wanted);
                // Whoever asked may be gone.
                let _gone = done.send(());
            }
        }
    }

    fn set(&mut self, wanted: Vec<Wanted>) {
        self.gear.lanes.close_resting();
        for index in 0..self.gear.doors.len() {
            let stays = self.gear.at_door(index, |door, gear| {
                let own = wanted.iter().find(|(socket, _)| Arc::ptr_eq(socket, &door.socket));
                match own {
                    Some((_, listener)) => door.replace(listener),
                    None => door.end_all(gear, Termination::Shutdown),
                }
                own.is_some()
            });
            if stays == Some(false) {
                self.gear.doors[index] = None;
            }
        }
        let is_open = |doors: &[Option<Box<Door>>], socket: &Arc<ListenSocket>| {
            doors.iter().flatten().any(|door| Arc::ptr_eq(&door.socket, socket))
        };
        for (socket, listener) in wanted {
            if is_open(&self.gear.doors, &socket) {
                continue;
            }
            if let Err(error) = self.open(&socket, &listener) {
                tracing::error!(
                    listener = %listener.name, address = %socket.local, %error,
                    "cannot receive on a bound socket"
                );
            }
        }
    }

    fn open(&mut self, socket: &Arc<ListenSocket>, listener: &Arc<Listener>) -> io::Result<()> {
        let fd = socket.take(self.gear.worker.index).ok_or(io::ErrorKind::NotConnected)?;
        let listening = Listening::new(fd)?;
        let doors = &mut self.gear.doors;
        let free = doors.iter().position(Option::is_none);
        let index = free.unwrap_or(doors.len());
        self.watch.get_ref().add(&listening, DOOR | index as u64)?;
        let door = Box::new(Door::new(socket, listener, index, listening));
        match free {
            Some(free) => doors[free] = Some(door),
            None => doors.push(Some(door)),
        }
        Ok(())
    }
}
