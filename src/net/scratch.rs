//! What a worker's sessions share and none owns while it waits: the copy buffer and the pipes.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

use crate::limits::{COPY_BUFFER, PIPE_REFUSED, PIPES_PER_WORKER, PIPES_POOLED};
use crate::sys::pipe::Pipe;

/// One of these a worker.
#[derive(Debug)]
pub struct Scratch {
    buffer: RefCell<Box<[u8]>>,
    pipes: Rc<Pool>,
}

#[derive(Debug, Default)]
struct Pool {
    free: RefCell<Vec<Pipe>>,
    /// Pipes in use, counted by [`PipeLoan`].
    lent: Cell<usize>,
    /// The kernel has given none; not before then is it asked again.
    ask_again: Cell<Option<Instant>>,
}

impl Default for Scratch {
    fn default() -> Self {
        let buffer = RefCell::new(vec![0; COPY_BUFFER].into_boxed_slice());
        Scratch { buffer, pipes: Rc::default() }
    }
}

impl Scratch {
    /// Lends the copy buffer for the length of one call.
    pub fn with_buffer<R>(&self, use_it: impl FnOnce(&mut [u8]) -> R) -> R {
        use_it(&mut self.buffer.borrow_mut())
    }

    /// An empty pipe, or `None` when the worker has enough of them or the kernel gives none;
    /// copying does the job then.
    pub fn pipe(&self) -> Option<PipeLoan> {
        if self.pipes.lent.get() >= PIPES_PER_WORKER {
            return None;
        }
        let pooled = self.pipes.free.borrow_mut().pop();
        let pipe = pooled.or_else(|| self.new_pipe())?;
        self.pipes.lent.set(self.pipes.lent.get() + 1);
        Some(PipeLoan { pipe: Some(pipe), pool: self.pipes.clone() })
    }
}

impl Scratch {
    /// Asking costs five system calls, so a refusal holds for a while.
    fn new_pipe(&self) -> Option<Pipe> {
        let now = Instant::now();
        if self.pipes.ask_again.get().is_some_and(|at| now < at) {
            return None;
        }
        let pipe = Pipe::new().ok();
        self.pipes.ask_again.set(pipe.is_none().then(|| now + PIPE_REFUSED));
        pipe
    }
}

/// A pipe on loan: it goes back when dropped, unless it holds bytes, which closes it.
#[derive(Debug)]
pub struct PipeLoan {
    pipe: Option<Pipe>,
    pool: Rc<Pool>,
}

impl PipeLoan {
    /// The pipe.
    pub fn pipe(&mut self) -> &mut Pipe {
        self.pipe.as_mut().expect("taken in drop alone")
    }

    /// Bytes in the pipe.
    pub fn held(&self) -> usize {
        self.pipe.as_ref().map_or(0, Pipe::held)
    }
}

impl Drop for PipeLoan {
    fn drop(&mut self) {
        self.pool.lent.set(self.pool.lent.get() - 1);
        let mut free = self.pool.free.borrow_mut();
        if let Some(pipe) = self.pipe.take()
            && pipe.held() == 0
            && free.len() < PIPES_POOLED
        {
            free.push(pipe);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipes_return_empty_or_not_at_all() {
        let scratch = Scratch::default();
        let mut loan = scratch.pipe().unwrap();
        let (a, b) = std::os::unix::net::UnixStream::pair().unwrap();
        crate::sys::socket::write(&a, b"x").unwrap();
        loan.pipe().fill(&b).unwrap();
        drop(loan);
        assert_eq!(scratch.pipes.free.borrow().len(), 0);
        drop(scratch.pipe().unwrap());
        assert_eq!(scratch.pipes.free.borrow().len(), 1);
        assert_eq!(scratch.pipes.lent.get(), 0);
    }

    #[test]
    fn there_is_a_last_pipe() {
        let scratch = Scratch::default();
        let all: Vec<_> = std::iter::from_fn(|| scratch.pipe()).collect();
        assert!(all.len() <= PIPES_PER_WORKER && !all.is_empty());
        assert!(scratch.pipe().is_none());
        drop(all);
        assert!(scratch.pipe().is_some());
        assert!(scratch.pipes.free.borrow().len() <= PIPES_POOLED);
    }
}
