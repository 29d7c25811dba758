//! The file of a listening unix socket: whose it is, and when it goes.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use socket2::{Domain, SockAddr, Socket, Type};

/// A socket file, removed when dropped unless somebody has put another in its place.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    identity: Identity,
}

/// Device and inode, and when it was made, since inodes are used again.
type Identity = (u64, u64, i64, i64);

fn identity(path: &Path) -> io::Result<Identity> {
    let file = fs::symlink_metadata(path)?;
    Ok((file.dev(), file.ino(), file.mtime(), file.mtime_nsec()))
}

impl SocketFile {
    /// The file that a bind has just made.
    pub fn of(path: &Path) -> io::Result<Self> {
        Ok(SocketFile { path: path.to_owned(), identity: identity(path)? })
    }

    /// Makes room for a bind: removes a socket file that nobody listens on any more, as a crashed
    /// process leaves it. Never waits.
    ///
    /// # Errors
    ///
    /// Another process listens on it, or it is something else than a socket.
    pub fn replace_stale(path: &Path) -> io::Result<()> {
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
            Ok(file) if !file.file_type().is_socket() => {
                let problem = "there is a file that is not a socket";
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, problem));
            }
            Ok(_) => {}
        }
        let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking().cloexec(), None)?;
        let problem = match socket.connect(&SockAddr::unix(path)?) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                return fs::remove_file(path);
            }
            // Somebody listens, and is too busy to accept.
            Err(error) if error.raw_os_error() == Some(Errno::AGAIN.raw_os_error()) => None,
            Err(error) => Some(error.to_string()),
            Ok(()) => None,
        };
        let problem =
            problem.unwrap_or_else(|| "another process answers on this socket".to_owned());
        Err(io::Error::new(io::ErrorKind::AddrInUse, problem))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|found| found == self.identity) {
            // Nothing is left to do about an error.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn only_its_own_file_goes() {
        let directory = std::env::temp_dir().join(format!("pointsman-file-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("a.sock");
        let live = UnixListener::bind(&path).unwrap();
        let busy = SocketFile::replace_stale(&path).unwrap_err();
        assert_eq!(busy.kind(), io::ErrorKind::AddrInUse);
        let file = SocketFile::of(&path).unwrap();
        drop(live);
        SocketFile::replace_stale(&path).unwrap();
        // The kernel's clock for files ticks every few milliseconds.
        let other = loop {
            let other = UnixListener::bind(&path).unwrap();
            if identity(&path).unwrap().3 != file.identity.3 {
                break other;
            }
            drop(other);
            fs::remove_file(&path).unwrap();
        };
        drop(file);
        assert!(path.exists(), "the file of another was removed");
        drop(other);
        drop(SocketFile::of(&path).unwrap());
        assert!(!path.exists());
        fs::write(&path, "text").unwrap();
        let other = SocketFile::replace_stale(&path).unwrap_err();
        assert_eq!(other.kind(), io::ErrorKind::AlreadyExists);
        fs::remove_dir_all(&directory).unwrap();
    }

    /// Connecting to a full queue would wait for as long as nobody accepts.
    #[test]
    fn a_full_queue_is_in_use() {
        let path = std::env::temp_dir().join(format!("pointsman-full-{}", std::process::id()));
        let listening = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        let address = SockAddr::unix(&path).unwrap();
        listening.bind(&address).unwrap();
        listening.listen(0).unwrap();
        let _file = SocketFile::of(&path).unwrap();
        let mut waiting = Vec::new();
        loop {
            let client = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None).unwrap();
            if client.connect(&address).is_err() {
                break;
            }
            waiting.push(client);
        }
        let error = SocketFile::replace_stale(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
