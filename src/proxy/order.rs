//! How a session is told to end by somebody who is not its peer.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};

use crate::state::Termination;

/// Held by a session and by its worker's list.
#[derive(Debug, Default)]
pub(super) struct Order {
    given: Cell<Option<Termination>>,
    waker: RefCell<Option<Waker>>,
}

impl Order {
    /// Tells the session to end, for this reason. The first order counts.
    pub fn give(&self, reason: Termination) {
        if self.given.get().is_none() {
            self.given.set(Some(reason));
        }
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    /// The order, if one was given.
    pub fn given(&self) -> Option<Termination> {
        self.given.get()
    }

    /// Like [`Order::given`]; without one, `waker` is woken when it comes.
    pub fn poll(&self, waker: &Waker) -> Option<Termination> {
        let given = self.given.get();
        if given.is_none() {
            let mut slot = self.waker.borrow_mut();
            if !slot.as_ref().is_some_and(|known| known.will_wake(waker)) {
                *slot = Some(waker.clone());
            }
        }
        given
    }

    /// Waits for an order.
    pub async fn received(&self) -> Termination {
        poll_fn(|cx| self.poll(cx.waker()).map_or(Poll::Pending, Poll::Ready)).await
    }
}
