//! Connections that wait for a place on a full pool, in order of arrival, from all workers.
//!
//! The lock is taken only while somebody waits: a named exception to "no lock on the data path".
//! The first in line looks for a place each time one may have become free; when it leaves, with a
//! place or without, the next one looks.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The line before a pool.
#[derive(Debug, Default)]
pub struct Queue {
    line: Mutex<VecDeque<Arc<Notify>>>,
    /// Its length, to look at without the lock.
    waiting: AtomicU32,
}

/// A connection's turn in the line, which it leaves when this is dropped.
#[derive(Debug)]
pub struct Turn {
    queue: Arc<Queue>,
    news: Arc<Notify>,
}

impl Queue {
    /// How many wait.
    pub fn waiting(&self) -> u32 {
        self.waiting.load(SeqCst)
    }

    /// Waits behind the others; `None` if `max` do already.
    pub fn join(self: &Arc<Self>, max: u32) -> Option<Turn> {
        let mut line = self.line();
        if line.len() >= max as usize {
            return None;
        }
        let news = Arc::new(Notify::new());
        line.push_back(news.clone());
        self.waiting.fetch_add(1, SeqCst);
        drop(line);
        // A place that is given back from here on is either seen, or followed by a nudge.
        fence(SeqCst);
        Some(Turn { queue: self.clone(), news })
    }

    /// Tells the first in line, if there is one, that there may be a place.
    pub fn nudge(&self) {
        if self.waiting() > 0
            && let Some(first) = self.line().front()
        {
            first.notify_one();
        }
    }

    fn line(&self) -> MutexGuard<'_, VecDeque<Arc<Notify>>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn {
    /// Whether nobody is before it.
    pub fn is_first(&self) -> bool {
        self.queue.line().front().is_some_and(|first| Arc::ptr_eq(first, &self.news))
    }

    /// Waits until it may be worth looking for a place.
    pub async fn news(&self) {
        self.news.notified().await;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut line = self.queue.line();
        // Those who leave are mostly the first.
        if line.front().is_some_and(|first| Arc::ptr_eq(first, &self.news)) {
            line.pop_front();
        } else {
            line.retain(|news| !Arc::ptr_eq(news, &self.news));
        }
        self.queue.waiting.fetch_sub(1, SeqCst);
        drop(line);
        // The news it was woken by may be for the next one as well.
        self.queue.nudge();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn is_woken(turn: &Turn) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        matches!(pin!(turn.news()).poll(&mut context), Poll::Ready(()))
    }

    #[test]
    fn in_order_of_arrival() {
        let queue = Arc::new(Queue::default());
        let turns: Vec<Turn> = (0..3).map(|_| queue.join(3).unwrap()).collect();
        assert!(queue.join(3).is_none());
        assert_eq!(queue.waiting(), 3);
        queue.nudge();
        let mut turns = turns.into_iter();
        for left in [2, 1] {
            let first = turns.next().unwrap();
            assert!(first.is_first() && is_woken(&first));
            assert!(turns.as_slice().iter().all(|turn| !turn.is_first() && !is_woken(turn)));
            drop(first);
            assert_eq!(queue.waiting(), left);
        }
        let last = turns.next().unwrap();
        assert!(last.is_first() && is_woken(&last));
        assert!(!is_woken(&last));
        drop(last);
        assert_eq!(queue.waiting(), 0);
        queue.nudge();
        assert!(queue.join(0).is_none());
    }

    #[test]
    fn who_gives_up_makes_room() {
        let queue = Arc::new(Queue::default());
        let [first, second, third] = [1, 2, 3].map(|_| queue.join(3).unwrap());
        drop(second);
        assert!(queue.join(3).is_some());
        drop(first);
        assert!(third.is_first() && is_woken(&third));
    }
}
