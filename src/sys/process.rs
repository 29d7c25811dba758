//! What the kernel grants this process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the descriptor limit to the hard limit.
pub fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    // A refusal (a seccomp filter, say) leaves the limit as it was, which is then what counts.
    let _refused = setrlimit(Resource::Nofile, raised);
}

/// Descriptors this process may have, as the limit is now.
pub fn descriptor_limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Threads that CPU affinity and cgroup quota allow.
pub fn usable_cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get)
}
