//! What a process uses, from /proc.

use std::fs;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A moment's use of what must come back to where it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Open descriptors of sockets.
    pub sockets: usize,
    /// Of pipes, which the program keeps some of.
    pub pipes: usize,
    /// All other open descriptors.
    pub others: usize,
    /// Threads, but for those of the control plane, which come and go.
    pub threads: usize,
}

impl Usage {
    /// Open descriptors of every kind.
    pub fn descriptors(self) -> usize {
        self.sockets + self.pipes + self.others
    }
}

/// Lets the tests themselves have as many descriptors as they may.
pub fn raise_descriptors() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
}

/// Reads [`Usage`].
pub fn usage(id: u32) -> Usage {
    let mut usage = Usage::default();
    for entry in fs::read_dir(format!("/proc/{id}/fd")).unwrap().flatten() {
        // It may be closed by now.
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        match target.to_string_lossy().split_once(':') {
            Some(("socket", _)) => usage.sockets += 1,
            Some(("pipe", _)) => usage.pipes += 1,
            _ => usage.others += 1,
        }
    }
    for entry in fs::read_dir(format!("/proc/{id}/task")).unwrap().flatten() {
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        usage.threads += usize::from(!name.is_empty() && name.trim() != "control");
    }
    usage
}

/// Whether every thread has been stopped by a signal.
pub fn is_stopped(id: u32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{id}/task")).unwrap();
    tasks.flatten().all(|task| {
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    })
}

/// Whether the kernel has handed over everything that was sent on this machine. On a loopback it
/// does so before the sender's call returns, but for when it has too much to do.
pub fn nothing_under_way() -> bool {
    let text = fs::read_to_string("/proc/net/softnet_stat").unwrap();
    // The twelfth number, where there are as many: packets in the queue of a processor.
    text.lines().filter_map(|line| line.split(' ').nth(11)).all(|waiting| waiting == "00000000")
}

/// Whether every thread sleeps whose name begins like this. What such a thread is to do wakes it, so
/// a sleeping one has done all that was there for it before. One that is gone has, too.
pub fn asleep(id: u32, name: &str) -> bool {
    let Ok(tasks) = fs::read_dir(format!("/proc/{id}/task")) else { return true };
    tasks.flatten().all(|task| {
        // pid (comm) state …
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        let state = stat.rsplit_once(") ").map(|(_, rest)| rest.starts_with('S'));
        !stat.contains(&format!("({name}")) || state == Some(true)
    })
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
