//! The files of unix sockets, when they are not only ours.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, Socket, Type};

use crate::harness::{Backend, Pointsman, command, fresh_directory, one_listener};

/// Somebody else's socket, whose queue is full: to connect would be to wait.
struct Busy {
    directory: PathBuf,
    _listening: Socket,
    _waiting: Vec<Socket>,
}

impl Busy {
    fn new() -> Self {
        let directory = fresh_directory();
        let address = SockAddr::unix(directory.join("busy.sock")).unwrap();
        let listening = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        listening.bind(&address).unwrap();
        listening.listen(0).unwrap();
        let mut waiting = Vec::new();
        loop {
            let client = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None).unwrap();
            if client.connect(&address).is_err() {
                return Busy { directory, _listening: listening, _waiting: waiting };
            }
            waiting.push(client);
            assert!(waiting.len() < 16, "the queue never filled");
        }
    }

    fn address(&self) -> String {
        format!("unix:{}/busy.sock", self.directory.display())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _kept = fs::remove_dir_all(&self.directory);
    }
}

#[test]
fn a_busy_socket_is_in_use_at_the_start() {
    let busy = Busy::new();
    let edge = one_listener("", &["127.0.0.1:1"], "");
    let admin = format!("admin: {{ bind: \"{}\" }}\n{edge}", busy.address());
    for yaml in [edge.replace("127.0.0.1:0", &busy.address()), admin] {
        let config = busy.directory.join("test.yaml");
        fs::write(&config, yaml).unwrap();
        let since = Instant::now();
        let answer = command(&["run", "-c", config.to_str().unwrap()]);
        assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
        assert_eq!(answer.code, 1, "{answer:?}");
        let expected = "another process answers on this socket";
        assert!(answer.stderr.contains(expected), "{answer:?}");
        assert!(answer.stderr.contains(&busy.address()), "{answer:?}");
        assert!(busy.directory.join("busy.sock").exists());
    }
}

#[test]
fn a_busy_socket_is_in_use_for_a_reload() {
    let busy = Busy::new();
    let backend = Backend::echo();
    let yaml = one_listener("", &[&backend.address()], "");
    let pointsman = Pointsman::start(&yaml);
    pointsman.configure(&yaml.replace("127.0.0.1:0", &busy.address()));
    let since = Instant::now();
    let (status, body) = pointsman.admin("POST", "/api/v1/reload");
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
    assert_eq!(status, 422, "{body}");
    let expected = format!(
        "listener edge: cannot listen on {}: another process answers on this socket",
        busy.address()
    );
    assert!(body.contains(&expected), "{body}");
    assert_eq!(pointsman.reload(&yaml), Ok(2));
    pointsman.stop();
    assert!(busy.directory.join("busy.sock").exists());
}

/// Another process has put its own socket there: it is not ours to remove.
fn replace(path: &Path) -> Socket {
    fs::remove_file(path).unwrap();
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
    socket.bind(&SockAddr::unix(path).unwrap()).unwrap();
    socket.listen(16).unwrap();
    socket
}

fn answers(path: &Path) -> bool {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
    socket.connect(&SockAddr::unix(path).unwrap()).is_ok()
}

/// A listener on these paths.
fn listening(paths: &[&Path], backend: &Backend) -> String {
    let paths: Vec<_> = paths.iter().map(|p| format!("\"unix:{}\"", p.display())).collect();
    let bind = format!("[{}]", paths.join(", "));
    one_listener("", &[&backend.address()], "").replace("\"127.0.0.1:0\"", &bind)
}

#[test]
fn the_file_of_another_stays() {
    let directory = fresh_directory();
    let backend = Backend::echo();
    let [front, gone] = ["front.sock", "gone.sock"].map(|name| directory.join(name));
    let pointsman = Pointsman::start(&listening(&[&front, &gone], &backend));
    assert!(answers(&front) && answers(&gone));
    let _others = (replace(&front), replace(&gone));
    pointsman.reload(&listening(&[&front], &backend)).unwrap();
    pointsman.stop();
    assert!(answers(&front), "removed at the end");
    assert!(answers(&gone), "removed with its listener");
    fs::remove_dir_all(directory).unwrap();
}

/// Those that are ours go, with their listener and at the end.
#[test]
fn our_own_files_go() {
    let directory = fresh_directory();
    let backend = Backend::echo();
    let [front, gone] = ["front.sock", "gone.sock"].map(|name| directory.join(name));
    let pointsman = Pointsman::start(&listening(&[&front, &gone], &backend));
    assert!(answers(&front) && answers(&gone));
    pointsman.reload(&listening(&[&front], &backend)).unwrap();
    assert!(answers(&front) && !gone.exists());
    pointsman.stop();
    assert!(!front.exists());
    fs::remove_dir_all(directory).unwrap();
}
