//! Registering descriptors with tokio.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers an open, non-blocking descriptor with the current runtime.
///
/// # Errors
///
/// The kernel refuses to watch it, for want of memory or beyond `max_user_watches`.
#[allow(unsafe_code)]
pub fn register(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    let interest = Interest::READABLE | Interest::WRITABLE;
    // SAFETY: an `OwnedFd` is open until it is dropped, names the same descriptor all the time,
    // and the `AsyncFd` owns it from here on.
    let registered = unsafe { AsyncFd::register_with_interest(fd, interest) };
    registered.map_err(|error| error.into_parts().1)
}
