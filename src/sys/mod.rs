//! System calls that tokio and socket2 lack. The only place where `unsafe` may stand.

pub mod allocator;
pub mod datagram;
pub mod epoll;
pub mod event;
pub mod pipe;
pub mod process;
pub mod socket;
pub mod socket_file;
