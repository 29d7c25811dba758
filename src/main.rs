//! The `pointsman` program: everything is in the library.

use pointsman::sys::allocator::{Jemalloc, OPTIONS};

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> std::process::ExitCode {
    // Named here, since the linker leaves out what nobody names.
    std::hint::black_box(OPTIONS);
    pointsman::cli::main()
}
