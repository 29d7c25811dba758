//! pointsman with routes, in front of backends that tell which one they are and what they got.

use super::{Backend, Pointsman, Stream};

/// Connections at a time in [`Edge::ask_all`].
const SIDE_BY_SIDE: usize = 256;

/// A listener `edge` with routes, and pools of one backend each. A backend takes everything up to
/// FIN, then answers with the name of its pool, a line feed, and all it got.
#[derive(Debug)]
pub struct Edge {
    /// What is tested.
    pub pointsman: Pointsman,
    pools: Vec<&'static str>,
    /// One of each pool, in their order.
    backends: Vec<Backend>,
    address: String,
}

impl Edge {
    /// Starts it. `listener` are further keys of the listener, a line each; `routes` are maps in
    /// flow style.
    pub fn start(listener: &[&str], routes: &[&str], pools: &[&'static str]) -> Self {
        let backends: Vec<_> = pools.iter().copied().map(answering).collect();
        let addresses = backends.iter().map(Backend::address);
        let named: Vec<_> = pools.iter().copied().zip(addresses).collect();
        let pointsman = Pointsman::start(&routed(listener, routes, &named));
        let address = pointsman.address("edge");
        Edge { pointsman, pools: pools.to_vec(), backends, address }
    }

    /// Connects to it.
    pub fn connect(&self) -> Stream {
        Stream::connect(&self.address)
    }

    /// What becomes of a client that sends this and FIN: the pool that got exactly these bytes, or
    /// `None` when it was closed without an answer.
    pub fn ask(&self, bytes: &[u8]) -> Option<String> {
        self.ask_all(&[vec![bytes.to_vec()]]).remove(0)
    }

    /// As [`Edge::ask`], of many clients side by side, each of which sends its bytes in parts:
    /// pointsman has read one part before the next is sent.
    pub fn ask_all(&self, flights: &[Vec<Vec<u8>>]) -> Vec<Option<String>> {
        let mut answers = Vec::with_capacity(flights.len());
        for flights in flights.chunks(SIDE_BY_SIDE) {
            let mut streams: Vec<_> = flights.iter().map(|_| self.connect()).collect();
            let most = flights.iter().map(Vec::len).max().unwrap_or(0);
            for number in 0..most {
                for (stream, parts) in streams.iter_mut().zip(flights) {
                    let Some(part) = parts.get(number) else { continue };
                    stream.write(part);
                    if number + 1 == parts.len() {
                        stream.finish();
                    }
                }
                if number + 1 < most {
                    self.pointsman.wait_received();
                }
            }
            for (stream, parts) in streams.iter_mut().zip(flights) {
                answers.push(answer(&stream.read_to_end(), &parts.concat()));
            }
        }
        answers
    }

    /// Its pools, as [`routed`] takes them.
    pub fn pools(&self) -> Vec<(&'static str, String)> {
        self.pools.iter().copied().zip(self.backends.iter().map(Backend::address)).collect()
    }

    /// How many connections have reached a backend.
    pub fn reached(&self) -> usize {
        self.backends.iter().map(Backend::accepted).sum()
    }

    /// Waits until nothing is open, and holds the program to be unhurt: so many connections have
    /// ended like this, and no thread has panicked.
    pub fn expect_closed(&self, termination: &str, count: usize) {
        let metrics = self.pointsman.wait_idle();
        assert_eq!(metrics.closed("edge", termination), count as f64, "{termination}");
        self.expect_unhurt();
    }

    /// No thread has panicked.
    pub fn expect_unhurt(&self) {
        let log = self.pointsman.log();
        assert!(!log.contains("panic"), "{log}");
    }
}

/// A configuration with the listener `edge` and pools without checks: names, and the backend's
/// address.
pub fn routed(listener: &[&str], routes: &[&str], pools: &[(&str, String)]) -> String {
    let mut yaml = "listeners:\n  edge:\n".to_owned();
    if !listener.iter().any(|line| line.starts_with("bind:")) {
        yaml += "    bind: \"127.0.0.1:0\"\n";
    }
    for line in listener {
        yaml += &format!("    {line}\n");
    }
    yaml += "    routes:\n";
    for route in routes {
        yaml += &format!("      - {route}\n");
    }
    yaml += "pools:\n";
    for (name, address) in pools {
        yaml += &format!("  {name}: {{ backends: [\"{address}\"], health: off }}\n");
    }
    yaml
}

/// A backend that takes everything up to FIN, then answers with a name, a line feed, and all it
/// got.
pub fn answering(name: &'static str) -> Backend {
    Backend::serving(move |mut stream| {
        let bytes = stream.read_to_end();
        stream.write(&[name.as_bytes(), b"\n", &bytes].concat());
    })
}

/// The name in an answer, whose bytes must be those sent.
pub fn answer(answer: &[u8], sent: &[u8]) -> Option<String> {
    if answer.is_empty() {
        return None;
    }
    let end = answer.iter().position(|byte| *byte == b'\n').expect("a name, then a line feed");
    let (name, got) = (&answer[..end], &answer[end + 1..]);
    if got != sent {
        let same = got.iter().zip(sent).take_while(|(got, sent)| got == sent).count();
        panic!("{} bytes became {}; the first {same} are alike", sent.len(), got.len());
    }
    Some(String::from_utf8(name.to_vec()).unwrap())
}

/// The first flight of a real client, by the name of its file.
pub fn captured(file: &str) -> Vec<u8> {
    let path = format!("{}/tests/data/hellos/{file}.bin", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(path).unwrap()
}
