//! The program's allocator and its options.
//!
//! jemalloc, since an idle session takes 1.6 KB with it and 2.1 KB with glibc's, which also keeps
//! what a peak has taken: see the README's figures.

pub use tikv_jemallocator::Jemalloc;

const TEXT: &[u8; 85] =
    b"background_thread:true,max_background_threads:1,dirty_decay_ms:2000,muzzy_decay_ms:0\0";

/// What jemalloc reads by this name when it starts: unused pages go back within seconds, from a
/// thread of its own, so that memory falls after a peak though nobody asks for any.
// SAFETY: nothing else has this name, and jemalloc expects a pointer to text that ends with zero.
#[allow(unsafe_code)]
#[unsafe(export_name = "_rjem_malloc_conf")]
pub static OPTIONS: &[u8; TEXT.len()] = TEXT;
