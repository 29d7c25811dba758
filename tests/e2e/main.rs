//! The real program with real peers. One file a behaviour; `harness` starts and watches things.

mod harness;

mod bulk;
mod ends;
mod first_steps;
mod quiet;
mod resets;
