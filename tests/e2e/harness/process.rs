//! What a process uses, from /proc.

use std::fs;
use std::time::Duration;

/// A moment's use of what must come back to where it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Open descriptors.
    pub descriptors: usize,
    /// Threads.
    pub threads: usize,
}

/// Reads [`Usage`].
pub fn usage(id: u32) -> Usage {
    let count = |what: &str| fs::read_dir(format!("/proc/{id}/{what}")).unwrap().count();
    Usage { descriptors: count("fd"), threads: count("task") }
}

/// Resident memory in bytes.
pub fn resident(id: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{id}/statm")).unwrap();
    let pages: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64
}

/// Time on a processor, of all threads that still run.
pub fn cpu_time(id: u32) -> Duration {
    let nanos = |task: fs::DirEntry| -> Option<u64> {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse().ok()
    };
    let tasks = fs::read_dir(format!("/proc/{id}/task")).unwrap();
    Duration::from_nanos(tasks.flatten().filter_map(nanos).sum())
}
