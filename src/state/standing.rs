//! What picks look at of a backend: one word, those of a pool side by side in memory, so that a
//! policy that compares a thousand backends reads a few kilobytes and not a thousand cache lines.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use super::AdminState;
use crate::balance::FULL_PULL;
use crate::health::State;

/// Words allocated at once.
const CHUNK: usize = 64;

/// Lowest bits: sessions and attempts. Above them what control says of the backend.
const ACTIVE: u64 = u32::MAX as u64;
const STATE_SHIFT: u32 = 32;
const STATE: u64 = 0xf << STATE_SHIFT;
const ADMIN_SHIFT: u32 = 36;
const ADMIN: u64 = 0x3 << ADMIN_SHIFT;
const SHORT_SHIFT: u32 = 40;
/// What is missing to [`FULL_PULL`].
const SHORT: u64 = 0xff << SHORT_SHIFT;

/// The word of one backend. Workers count in it through leases alone; control writes the rest.
#[derive(Debug, Default)]
pub struct Word {
    bits: AtomicU64,
    /// The most sessions and attempts; `u32::MAX` is no bound. Control writes: who waits for a
    /// place sees at once what a reload has made of it.
    max: AtomicU32,
}

/// A word as it was when it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing(u64);

impl Standing {
    /// Sessions and attempts.
    pub fn active(self) -> u32 {
        (self.0 & ACTIVE) as u32
    }

    /// Its state.
    pub fn state(self) -> State {
        let value = ((self.0 & STATE) >> STATE_SHIFT) as u8;
        State::ALL.into_iter().find(|&state| state as u8 == value).unwrap_or(State::Unknown)
    }

    /// What the operator wants of it.
    pub fn admin(self) -> AdminState {
        let value = ((self.0 & ADMIN) >> ADMIN_SHIFT) as u8;
        let known = AdminState::ALL.into_iter().find(|&admin| admin as u8 == value);
        known.unwrap_or(AdminState::Maintenance)
    }

    /// Whether the operator lets it have new connections.
    pub fn is_ready(self) -> bool {
        self.0 & ADMIN == (AdminState::Ready as u64) << ADMIN_SHIFT
    }

    /// Whether it may have new connections and its state is [`State::Up`].
    pub fn is_usable(self) -> bool {
        const USABLE: u64 =
            (State::Up as u64) << STATE_SHIFT | (AdminState::Ready as u64) << ADMIN_SHIFT;
        self.0 & (STATE | ADMIN) == USABLE
    }

    /// How much of its share it gets, 1 to [`FULL_PULL`].
    pub fn pull(self) -> u8 {
        FULL_PULL - ((self.0 & SHORT) >> SHORT_SHIFT) as u8
    }
}

impl Word {
    /// Reads it.
    pub fn get(&self) -> Standing {
        Standing(self.bits.load(Relaxed))
    }

    /// Whether there is no place left, as it was when `standing` was read.
    pub fn is_full(&self, standing: Standing) -> bool {
        standing.active() >= self.max.load(Relaxed)
    }

    /// Sets the most sessions and attempts; `u32::MAX` is no bound. Control only.
    pub fn set_max(&self, max: u32) {
        self.max.store(max, Relaxed);
    }

    /// Sets the state. Control only.
    pub fn set_state(&self, state: State) {
        self.set(STATE, (state as u64) << STATE_SHIFT);
    }

    /// Sets what the operator wants of it. Control only.
    pub fn set_admin(&self, admin: AdminState) {
        self.set(ADMIN, (admin as u64) << ADMIN_SHIFT);
    }

    /// Sets the pull, 1 to [`FULL_PULL`]. Control only.
    pub fn set_pull(&self, pull: u8) {
        self.set(SHORT, u64::from(FULL_PULL.saturating_sub(pull.max(1))) << SHORT_SHIFT);
    }

    fn set(&self, mask: u64, value: u64) {
        // Never refuses; a count that changes in between makes it try again.
        let _before = self.bits.fetch_update(Relaxed, Relaxed, |bits| Some(bits & !mask | value));
    }

    /// Takes a place if there is one; the count is never above the bound, whoever else tries. Nor
    /// is there a place for a pick that saw it ready and comes too late: once it is being drained
    /// the count only goes down.
    pub(super) fn enter(&self) -> bool {
        let max = u64::from(self.max.load(Relaxed));
        if max == u64::from(u32::MAX) {
            if Standing(self.bits.fetch_add(1, Relaxed)).is_ready() {
                return true;
            }
            self.leave();
            return false;
        }
        let enter = |bits: u64| {
            let room = bits & ACTIVE < max && Standing(bits).is_ready();
            room.then_some(bits + 1)
        };
        self.bits.fetch_update(Relaxed, Relaxed, enter).is_ok()
    }

    /// Gives a place back. What follows on this thread is seen only after it, so that whoever
    /// waits for a place has either been seen to wait or sees the place.
    pub(super) fn leave(&self) {
        self.bits.fetch_sub(1, SeqCst);
    }
}

/// Words next to each other.
#[derive(Debug)]
#[repr(align(64))]
struct Chunk([Word; CHUNK]);

/// The words of a pool's backends, kept over reloads.
#[derive(Debug, Default)]
pub struct Board {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    chunks: Vec<Arc<Chunk>>,
    /// Numbers given back.
    free: Vec<u32>,
    next: u32,
}

/// A backend's word and where it is on the board; given back when dropped.
#[derive(Debug)]
pub struct Seat {
    board: Arc<Board>,
    chunk: Arc<Chunk>,
    number: u32,
}

impl Board {
    /// A word for one more backend. First come, first seated, so that a new pool's words are in
    /// the order of its backends.
    pub fn seat(self: &Arc<Self>, state: State) -> Seat {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let number = inner.free.pop().unwrap_or_else(|| {
            inner.next += 1;
            inner.next - 1
        });
        let at = number as usize / CHUNK;
        if at == inner.chunks.len() {
            inner.chunks.push(Arc::new(Chunk(std::array::from_fn(|_| Word::default()))));
        }
        let seat = Seat { board: self.clone(), chunk: inner.chunks[at].clone(), number };
        seat.word().bits.store((state as u64) << STATE_SHIFT, Relaxed);
        seat.word().set_max(u32::MAX);
        seat
    }
}

impl Seat {
    /// The word.
    pub fn word(&self) -> &Word {
        &self.chunk.0[self.number as usize % CHUNK]
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut inner = self.board.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.free.push(self.number);
    }
}

/// The words of some backends of a board, by index.
#[derive(Debug)]
pub struct Words {
    chunks: Box<[Arc<Chunk>]>,
    numbers: Box<[u32]>,
    runs: Box<[Run]>,
}

/// Words that follow each other on the board as their backends do by index.
#[derive(Clone, Copy, Debug)]
struct Run {
    chunk: usize,
    from: usize,
    count: usize,
    /// Of the first of them.
    index: usize,
}

/// The bits of a backend that is up and gets its full share, but for its count.
const PLAIN: u64 = (State::Up as u64) << STATE_SHIFT;

impl Words {
    /// Those at `seats`, which are of one board.
    pub fn of<'a>(seats: impl Iterator<Item = &'a Seat>) -> Words {
        let mut chunks: Vec<Arc<Chunk>> = Vec::new();
        let number = |seat: &Seat| {
            let known = chunks.iter().rposition(|chunk| Arc::ptr_eq(chunk, &seat.chunk));
            let at = known.unwrap_or_else(|| {
                chunks.push(seat.chunk.clone());
                chunks.len() - 1
            });
            (at * CHUNK) as u32 + seat.number % CHUNK as u32
        };
        let numbers: Box<[u32]> = seats.map(number).collect();
        Words { chunks: chunks.into(), runs: runs(&numbers), numbers }
    }

    /// Of the backends that are up and get their full share, one with the fewest sessions and
    /// attempts, each of these with the same chance.
    pub fn least_active(&self, rng: &mut fastrand::Rng) -> Option<usize> {
        // Whatever is not plain is above every count.
        let (mut least, mut equals, mut chosen) = (ACTIVE + 1, 0, None);
        for run in &self.runs {
            let of_run = self.counts(run).min().unwrap_or(u64::MAX);
            if of_run > least || of_run > ACTIVE {
                continue;
            }
            let here = self.counts(run).filter(|&count| count == of_run).count();
            equals = if of_run < least { here } else { equals + here };
            // The last of several runs stays with the probability of its share.
            if of_run < least || rng.usize(..equals.max(1)) < here {
                chosen = Some((run, here));
            }
            least = of_run;
        }
        let (run, here) = chosen?;
        let mut equal = (0..).zip(self.counts(run)).filter(|&(_, count)| count == least);
        // Where counts have changed meanwhile, any of the run was good a moment ago.
        let offset = equal.nth(rng.usize(..here.max(1))).map_or(0, |(offset, _)| offset);
        Some(run.index + offset)
    }

    /// The counts of a run; above [`ACTIVE`] where it is not plain.
    fn counts(&self, run: &Run) -> impl Iterator<Item = u64> {
        let words = &self.chunks[run.chunk].0[run.from..][..run.count];
        words.iter().map(|word| word.bits.load(Relaxed) ^ PLAIN)
    }

    /// The word of backend `index`.
    pub fn word(&self, index: usize) -> &Word {
        let number = self.numbers[index] as usize;
        &self.chunks[number / CHUNK].0[number % CHUNK]
    }

    /// What the word of backend `index` says.
    pub fn get(&self, index: usize) -> Standing {
        self.word(index).get()
    }
}

fn runs(numbers: &[u32]) -> Box<[Run]> {
    let mut runs: Vec<Run> = Vec::new();
    for (index, &number) in numbers.iter().enumerate() {
        let (chunk, at) = (number as usize / CHUNK, number as usize % CHUNK);
        match runs.last_mut() {
            Some(run) if run.chunk == chunk && run.from + run.count == at => run.count += 1,
            _ => runs.push(Run { chunk, from: at, count: 1, index }),
        }
    }
    runs.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_disturb_each_other() {
        let board = Arc::new(Board::default());
        let seat = board.seat(State::Unknown);
        let word = seat.word();
        assert!(word.enter() && word.enter());
        for state in State::ALL {
            for (pull, admin) in [1, 10, FULL_PULL].into_iter().zip(AdminState::ALL) {
                word.set_pull(pull);
                word.set_state(state);
                word.set_admin(admin);
                let now = word.get();
                assert_eq!((now.active(), now.state(), now.pull()), (2, state, pull));
                let ready = admin == AdminState::Ready;
                assert_eq!((now.admin(), now.is_ready()), (admin, ready));
                assert_eq!(now.is_usable(), state == State::Up && ready);
            }
        }
        word.leave();
        assert_eq!(word.get().active(), 1);
        word.set_pull(0);
        assert_eq!(word.get().pull(), 1);
    }

    #[test]
    fn seats_are_taken_again() {
        let board = Arc::new(Board::default());
        let mut seats: Vec<Seat> = (0..130).map(|_| board.seat(State::Up)).collect();
        seats[7].word().set_state(State::Down);
        assert!(seats[129].word().enter());
        seats[7].word().set_max(3);
        let words = Words::of(seats.iter());
        assert_eq!(words.get(7).state(), State::Down);
        assert_eq!((words.get(128).active(), words.get(129).active()), (0, 1));
        assert_eq!(words.chunks.len(), 3);
        drop(seats.remove(7));
        let again = board.seat(State::Up);
        assert_eq!(again.number, 7);
        let standing = again.word().get();
        assert_eq!(standing, Standing((State::Up as u64) << STATE_SHIFT));
        assert!(!again.word().is_full(standing));
    }

    /// In whatever order they were seated, and however many have the least.
    #[test]
    fn the_least_active_of_all() {
        let board = Arc::new(Board::default());
        let mut seats: Vec<Seat> = (0..200).map(|_| board.seat(State::Up)).collect();
        let mut rng = fastrand::Rng::with_seed(4);
        rng.shuffle(&mut seats);
        seats.truncate(150);
        let words = Words::of(seats.iter());
        assert_eq!(words.runs.iter().map(|run| run.count).sum::<usize>(), 150);
        for (index, seat) in seats.iter().enumerate() {
            (0..index % 4).for_each(|_| assert!(seat.word().enter()));
        }
        // Of those with none, 0, 4, 8 …: one down, one warming up.
        seats[0].word().set_state(State::Down);
        seats[4].word().set_pull(50);
        let mut counts = [0i32; 150];
        for _ in 0..36_000 {
            counts[words.least_active(&mut rng).unwrap()] += 1;
        }
        for (index, &count) in counts.iter().enumerate() {
            let expected = if index % 4 == 0 && index > 4 { 1000 } else { 0 };
            // Five standard deviations of a binomial are 156.
            assert!((count - expected).abs() <= 156, "{index}: {count}");
        }
        seats.iter().for_each(|seat| seat.word().set_state(State::Down));
        assert_eq!(words.least_active(&mut rng), None);
        assert_eq!(Words::of([].iter()).least_active(&mut rng), None);
    }

    /// Whoever drains a backend and then sees nobody on it can stop it.
    #[test]
    fn nobody_enters_once_it_is_drained() {
        for max in [u32::MAX, 5] {
            let board = Arc::new(Board::default());
            let seat = board.seat(State::Up);
            let word = seat.word();
            word.set_max(max);
            assert!(word.enter());
            for admin in [AdminState::Drain, AdminState::Maintenance] {
                word.set_admin(admin);
                assert!(!word.enter());
                assert_eq!((word.get().active(), word.get().admin()), (1, admin));
            }
            word.set_admin(AdminState::Ready);
            assert!(word.enter());
            assert_eq!(word.get().active(), 2);
        }
    }

    #[test]
    fn a_cap_holds_exactly() {
        const CAP: u32 = 3;
        let board = Arc::new(Board::default());
        let seat = board.seat(State::Up);
        seat.word().set_max(CAP);
        let full = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        if !seat.word().enter() {
                            full.fetch_add(1, Relaxed);
                            continue;
                        }
                        let active = seat.word().get().active();
                        assert!((1..=CAP).contains(&active), "{active}");
                        seat.word().leave();
                    }
                });
            }
        });
        assert_eq!(seat.word().get().active(), 0);
        seat.word().set_max(1);
        assert!(seat.word().enter() && !seat.word().enter());
        assert!(seat.word().is_full(seat.word().get()));
    }
}
