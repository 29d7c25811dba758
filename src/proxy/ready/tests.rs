//! Handing out, without a worker around it.

use std::net::{TcpListener, TcpStream};

use super::*;
use crate::address::Address;
use crate::health::State;
use crate::state::{PoolState, Process};

struct Scene {
    process: Arc<Process>,
    pool: Arc<PoolState>,
    listener: TcpListener,
    shelf: Shelf,
}

impl Scene {
    fn new() -> Self {
        let (process, _inbox) = Process::new(1);
        let pool = process.registry.pool(&Arc::from("www"));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Ip(listener.local_addr().unwrap());
        let backend = process.registry.backend(&pool, &Arc::from("b"), &address, State::Up);
        Scene { process, pool, listener, shelf: Shelf::new(&backend) }
    }

    /// Puts a connection on the shelf; the backend's end of it.
    async fn put(&self, lives: Duration) -> TcpStream {
        let socket = connect(&self.shelf.backend.address, Duration::from_secs(5));
        let mut kept = Kept::take(&self.process).unwrap();
        kept.established(&self.pool);
        let held = Held { socket: socket.await.unwrap(), kept };
        let since = Instant::now();
        self.shelf.idle.borrow_mut().push(Rc::new(Idle {
            held: RefCell::new(Some(held)),
            taken: Notify::new(),
            since,
            until: since + lives,
        }));
        self.listener.accept().unwrap().0
    }

    fn counts(&self) -> (u32, u64) {
        let counts = self.pool.ready_counts();
        (counts.kept, counts.lost)
    }
}

/// The worker has not heard of it yet, since it has not asked for events.
#[tokio::test]
async fn what_the_backend_has_closed_is_not_handed_out() {
    let scene = Scene::new();
    let mut ends = Vec::new();
    for _ in 0..4 {
        ends.push(scene.put(Duration::from_secs(60)).await);
    }
    let alive = ends.remove(1);
    for end in ends {
        socket2::SockRef::from(&end).set_linger(Some(Duration::ZERO)).unwrap();
        drop(end);
    }
    let socket = scene.shelf.take(0).expect("one is left");
    let peer = socket2::SockRef::from(&socket).peer_addr().unwrap().as_socket();
    assert_eq!(peer, alive.local_addr().ok());
    assert_eq!(scene.counts(), (1, 2));
    assert!(scene.shelf.take(0).is_none());
    assert_eq!(scene.counts(), (0, 3));
}

#[tokio::test]
async fn what_is_too_old_is_not_handed_out() {
    let scene = Scene::new();
    let _ends = [scene.put(Duration::ZERO).await, scene.put(Duration::ZERO).await];
    assert!(scene.shelf.take(0).is_none());
    assert_eq!(scene.counts(), (0, 0));
}
