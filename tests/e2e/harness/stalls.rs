//! How late things are on this machine whatever is tested.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::pass;

/// How late something is that has nothing to do, at worst: what others keep it waiting for.
#[derive(Debug)]
pub struct Stalls {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Duration>,
}

impl Stalls {
    /// Looks from now on.
    pub fn watch() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let over = over.clone();
            move || {
                let (nap, mut worst) = (Duration::from_millis(5), Duration::ZERO);
                while !over.load(Relaxed) {
                    let begun = Instant::now();
                    pass(nap);
                    worst = worst.max(begun.elapsed().saturating_sub(nap));
                }
                worst
            }
        });
        Stalls { over, thread }
    }

    /// The worst so far.
    pub fn worst(self) -> Duration {
        self.over.store(true, Relaxed);
        self.thread.join().expect("it only sleeps")
    }
}
