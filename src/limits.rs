//! Every bound in one place. A queue, buffer, table or loop elsewhere names one of these.

use std::time::Duration;

/// Bytes a worker reads at a time in copy mode, and the most that a short write can leave behind
/// in one direction of a session.
pub const COPY_BUFFER: usize = 64 * 1024;

/// Capacity asked for each splice pipe. Below [`PIPE_MIN`] splicing is slower than copying.
pub const PIPE_SIZE: usize = 1024 * 1024;

/// The smallest pipe worth splicing through.
pub const PIPE_MIN: usize = 256 * 1024;

/// Pipes of one worker, in use and pooled; beyond it directions copy.
pub const PIPES_PER_WORKER: usize = 256;

/// Empty pipes a worker keeps for the next bulk transfer; more are closed.
pub const PIPES_POOLED: usize = 32;

/// How long a worker copies before it asks for a pipe again that the kernel has refused.
pub const PIPE_REFUSED: Duration = Duration::from_secs(1);

/// Bytes one session may move in one poll before the worker looks at the others.
pub const RELAY_BUDGET: usize = 1024 * 1024;

/// Connections a worker takes from one listening socket before it looks at its sessions.
pub const ACCEPT_BATCH: usize = 32;

/// Connections the kernel may hold for a listener (it caps this at `net.core.somaxconn`).
pub const BACKLOG: i32 = 65_535;

/// Commands to control that wait for their turn.
pub const COMMANDS: usize = 16;

/// Connections handed to a worker that it has not taken yet.
pub const HANDOVERS: usize = 1024;

/// Connection ids of QUIC that the process knows the backend of, the latest that clients have used;
/// 15 MB, and what the hello asked for: up to 400 bytes a connection.
pub const CONNECTION_IDS: usize = 1 << 17;

/// The same of ids that no client has used since its server chose them, and of the first ones, which
/// clients make up: of handshakes under way, and of forged ones.
pub const CONNECTION_IDS_UNUSED: usize = 1 << 14;

/// Sources of a UDP listener whose flows and datagrams are counted, where they have limits.
pub const SOURCES: usize = 1 << 20;

/// Datagrams that are kept of an unfinished QUIC hello.
pub const PREREAD_DATAGRAMS: usize = 64;

/// Sockets without a flow that a worker keeps to one backend for the next exchange.
pub const LANES_RESTING: usize = 64;

/// Times that a worker looks at its UDP sockets before it looks at its sessions, and at what the
/// operator wants.
pub const DATAGRAM_TURNS: u32 = 4;

/// Attempts that the access log's record of one connection has, the first.
pub const LOGGED_ATTEMPTS: usize = 64;

/// Datagrams, or trains of them, that one receive takes; each has room for 64 KiB.
pub const DATAGRAM_BATCH: usize = 32;

/// Datagrams that are handed to the kernel as one (`UDP_MAX_SEGMENTS` of Linux before 6.9).
pub const DATAGRAM_SEGMENTS: usize = 64;

/// Flows that make room at a time when no local port is left: the kernel looks at all of them, for a
/// millisecond, before it says so, and as long for the only one that is free.
pub const PORTS_GIVEN_UP: usize = 64;

/// Sockets with something to read that are reported at a time.
pub const EPOLL_EVENTS: usize = 64;

/// Pause of a listener after the process ran out of descriptors or memory.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long a listener that is to go takes what is waiting; under a flood it would never end.
pub const RETIRE: Duration = Duration::from_millis(200);

/// The share of `max_connections` that flows leave to sessions, where there are listeners for these:
/// datagrams with forged addresses cost nothing, and must not keep connections out.
pub const SESSIONS_SHARE: u32 = 8;

/// Descriptors kept back from `max_connections: auto` for listeners, the admin server, logs and
/// splice pipes; those of checks under way come to it.
pub const RESERVED_DESCRIPTORS: u64 = 1024;

/// How long received bytes may take to reach the other side before a reset is passed on.
pub const RESET_DELIVERY: Duration = Duration::from_secs(1);

/// How long a close by FIN waits for the client to close its side, discarding what it sends.
pub const LINGER: Duration = Duration::from_secs(1);

/// Attempts of one connection, the most that `connect.attempts` may ask for.
pub const ATTEMPTS_MAX: usize = 16;

/// Routes of one listener.
pub const ROUTES_PER_LISTENER: usize = 20_000;

/// The largest weight of a pool in a split.
pub const SPLIT_WEIGHT_MAX: u32 = 1_000_000;

/// The smallest value of `preread.max_bytes`: less than an ordinary hello with a post-quantum key
/// share makes no sense.
pub const HELLO_MIN: usize = 4 * 1024;

/// The largest value of `preread.max_bytes`.
pub const HELLO_MAX: usize = 1024 * 1024;

/// What a hello's buffer of this many bytes counts: an eighth more, since buffers that come and go
/// on several threads leave holes that the allocator keeps.
pub const fn hello_cost(bytes: usize) -> usize {
    bytes + bytes / 8
}

/// The largest value of `preread.total_bytes`.
pub const HELLOS_MAX: usize = 16 * 1024 * 1024 * 1024;

/// Flows of one UDP listener at a time, the most that `limits.flows` may ask for.
pub const FLOWS_MAX: u32 = 4_000_000;

/// The largest value of `limits.per_source.rate`, in datagrams a second.
pub const SOURCE_RATE_MAX: u32 = 10_000_000;

/// The largest values of `udp.responses` and `udp.requests`.
pub const FLOW_DATAGRAMS_MAX: u32 = 1_000_000;

/// The smallest value of `udp.receive_buffer`: a few full datagrams.
pub const RECEIVE_BUFFER_MIN: usize = 4 * 1024;

/// The largest value of `udp.receive_buffer`: the kernel doubles it, and it is an `int`.
pub const RECEIVE_BUFFER_MAX: usize = 1 << 30;

/// Bytes of a `server_id` and a nonce together: a QUIC connection id of 20 bytes, less its first.
pub const SERVER_ID_AND_NONCE: usize = 19;

/// Backends in one pool.
pub const BACKENDS_PER_POOL: usize = 10_000;

/// Picks of one connection that find a place and lose it to another worker, before the pool counts
/// as full.
pub const PICK_RACES: usize = 64;

/// The largest value of a pool's `queue.max`.
pub const QUEUE_MAX: u32 = 100_000;

/// The largest weight of a backend.
pub const WEIGHT_MAX: u16 = 256;

/// Slots of the largest Maglev table.
pub const MAGLEV_TABLE_MAX: usize = 5_000_011;

/// Tickets a round robin pick draws before it searches for any usable backend.
pub const ROUND_ROBIN_DRAWS: usize = 512;

/// Slots of the longest round robin schedule: every backend at a weight without common divisor.
pub const ROUND_ROBIN_SLOTS: usize = BACKENDS_PER_POOL * WEIGHT_MAX as usize;

/// Random draws that hit an unusable backend before the usable ones are searched.
pub const RANDOM_DRAWS: usize = 16;

/// Maglev slots looked at, from the one hashed to, before the usable backends are searched.
pub const MAGLEV_STEPS: usize = 512;

/// Points on the ring for each unit of a backend's weight.
pub const RING_POINTS_PER_WEIGHT: usize = 160;

/// Points of the largest ring, of 14 bytes each and as many again while it is built: 10,000
/// backends of weight 2, or 100 of weight 256.
pub const RING_POINTS: usize = 1 << 22;

/// Points of a ring looked at, from the one hashed to, before the usable backends are searched.
pub const RING_STEPS: usize = 512;

/// Lines of the program's log waiting to be written; more are dropped and counted.
pub const LOG_QUEUE: usize = 4 * 1024;

/// Shortages, each of one listener and for one cause, that a worker warns of at a time.
pub const SHORTAGES: usize = 64;

/// Access log records waiting for the writer; more are dropped and counted.
pub const ACCESS_LOG_QUEUE: usize = 16 * 1024;

/// How long the writer of the access log, woken by a record, leaves the next ones in the queue,
/// which has room for 1.6 million a second.
pub const ACCESS_LOG_GATHER: Duration = Duration::from_millis(10);

/// Bytes of access log lines gathered before they are written.
pub const ACCESS_LOG_BUFFER: usize = 64 * 1024;

/// Bytes of a hello's ALPN that a session keeps for the access log; a client may offer 64 KiB.
pub const LOGGED_ALPN: usize = 1024;

/// Bytes of a hello's ALPN that are kept with the ids of its connection.
pub const KNOWN_ALPN: usize = 64;

/// Records of one termination that are written each second where they come in floods; the others
/// are counted and left out.
pub const FLOOD_RECORDS_PER_SECOND: u32 = 100;

/// Health checks under way at once in the process, at most: at the default timeout and interval
/// twice as many backends can be silent before the checks of others wait for theirs.
pub const CHECKS_IN_FLIGHT: usize = 8192;

/// The share of the process's descriptors that checks under way may take.
pub const CHECKS_DESCRIPTORS_SHARE: u64 = 8;

/// Probes that wait for their backend to close as well; more are closed without a wait.
pub const CHECKS_CLOSING: usize = 512;

/// Bytes that a check sends, or looks for in the answer.
pub const CHECK_BYTES: usize = 4 * 1024;

/// Bytes of an answer, or of the head of an HTTP response, that a check reads before it gives up.
pub const CHECK_ANSWER: usize = 16 * 1024;

/// Bytes that a check throws away at its end so that the backend sees no reset.
pub const CHECK_DISCARD: usize = 1024 * 1024;

/// The longest first wait of a connection that has tried every backend; doubled each round.
pub const BACKOFF_BASE: Duration = Duration::from_millis(25);

/// The longest such wait.
pub const BACKOFF_CAP: Duration = Duration::from_secs(1);

/// Backends waiting for control to look at them.
pub const ALARMS: usize = 1024;

/// Failed connections in a row, the most that `outlier.consecutive_failures` may ask for.
pub const CONSECUTIVE_FAILURES_MAX: u16 = 1000;

/// Connections that the failure rate of a backend is taken over, the most that `outlier.window`
/// may ask for.
pub const OUTLIER_WINDOW_MAX: u16 = 2000;

/// Connections at a time that may try an ejected backend, the most that
/// `outlier.trial_connections` may ask for.
pub const TRIAL_CONNECTIONS_MAX: u8 = 100;

/// The largest `connect.retry_budget`, in percent: every connection may be tried twice.
pub const RETRY_BUDGET_MAX: u8 = 100;

/// Unused connections that a worker keeps to one backend, the most that `connect.ready` may ask
/// for: with a round trip of 10 ms enough for 12,800 connections a second.
pub const READY_MAX: u16 = 128;

/// Attempts of one worker to make connections ready, at a time: a reload that adds thousands of
/// backends makes no burst, and what clients wait for goes on.
pub const READY_ATTEMPTS: usize = 64;

/// The share of the process's descriptors that connections kept ready may take.
pub const READY_DESCRIPTORS_SHARE: u64 = 4;

/// The longest first wait after an attempt to make a connection ready has failed; doubled each
/// time.
pub const READY_BACKOFF_BASE: Duration = Duration::from_millis(100);

/// The longest such wait.
pub const READY_BACKOFF_CAP: Duration = Duration::from_secs(5);

/// A backend that closes an unused connection younger than this does not want it: that counts as
/// an attempt that has failed.
pub const READY_SETTLED: Duration = Duration::from_secs(1);

/// Sources or connection ids that one call forgets before others get the lock.
pub const FORGET_BATCH: usize = 64;

/// Worker threads the configuration may ask for.
pub const WORKERS_MAX: usize = 256;

/// The largest request body the admin server reads.
pub const ADMIN_BODY: usize = 64 * 1024;

/// Questions about its sessions that wait for a worker.
pub const QUERIES: usize = 16;

/// Sessions a worker looks at, of those it is asked for, before it goes on with serving them.
pub const QUERY_BATCH: usize = 1024;

/// Sessions that are listed if nobody says how many.
pub const SESSIONS_LISTED: usize = 100;

/// The most sessions in one list.
pub const SESSIONS_LISTED_MAX: usize = 10_000;

/// Requests the admin server answers at once.
pub const ADMIN_CONNECTIONS: usize = 64;

/// How long a client of the admin server may take to send a request, and stay silent before one.
pub const ADMIN_READ: Duration = Duration::from_secs(5);

/// Age after which a connection of the admin server is closed when its answer is out.
pub const ADMIN_AGE: Duration = Duration::from_secs(60);

/// How long workers may take to answer for their sessions.
pub const ADMIN_QUERY: Duration = Duration::from_secs(2);

/// How long a reload may take before the admin server stops waiting for its result.
pub const ADMIN_RELOAD: Duration = Duration::from_secs(30);

/// The longest bearer token.
pub const ADMIN_TOKEN: u64 = 4096;

/// The largest configuration file.
pub const CONFIG_BYTES: u64 = 64 * 1024 * 1024;

/// Errors of meaning reported in one run; more are counted.
pub const CONFIG_ERRORS: usize = 100;

/// Words compared in one run to find what a misspelt one was meant to be: a pool misspelt in
/// 10,000 listeners must not cost 10,000 searches.
pub const CONFIG_COMPARISONS: usize = 200_000;

/// Searches in one run for routes that can never match, about half a second: beyond, a route with
/// a thousand names and a thousand networks is not warned of.
pub const SHADOW_SEARCHES: usize = 4_000_000;

/// Levels of maps and lists in a configuration file.
pub const CONFIG_DEPTH: usize = 32;

/// Bytes of the name of a listener, pool or backend: they become labels, paths and log fields.
pub const NAME_BYTES: usize = 128;

/// The longest duration in the configuration, ten years: sums of a few never overflow.
pub const DURATION_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// The longest TCP keepalive time that Linux takes (`MAX_TCP_KEEPIDLE`).
pub const KEEPALIVE_MAX: Duration = Duration::from_secs(32_767);

/// The longest `user_timeout`: TCP_USER_TIMEOUT is an `int` of milliseconds.
pub const USER_TIMEOUT_MAX: Duration = Duration::from_secs(24 * 24 * 3600);

/// The longest path of a unix socket, without the terminating zero (`sun_path` is 108 bytes).
pub const UNIX_PATH: usize = 107;

/// Requests of one simulated run: 160 MB of latencies and connect times.
pub const SIMULATE_REQUESTS: u64 = 10_000_000;

/// Simulated requests under way at once, and so closed-loop clients; an arrival beyond is turned
/// away as `max_connections` would.
pub const SIMULATE_IN_FLIGHT: usize = 1_000_000;

/// What one simulated run may cost, in events; a pick among n backends counts as n/8 more. Some
/// minutes.
pub const SIMULATE_STEPS: u64 = 1 << 30;

/// The longest virtual time of a simulated run.
pub const SIMULATE_TIME: Duration = Duration::from_secs(30 * 24 * 3600);

/// The longest single time in a simulation: a service, a thought, a gap between two arrivals.
pub const SIMULATE_SINGLE_TIME: Duration = Duration::from_secs(24 * 3600);

/// The highest rate of arrivals a second, in a simulation and in a sizing.
pub const SIMULATE_RATE: f64 = 1e9;

/// How many times slower a simulated backend may be.
pub const SIMULATE_FACTOR: f64 = 1e6;

/// Requests a simulated backend serves at once.
pub const SIMULATE_SLOTS: usize = 1_000_000;

/// Simulated backends that die or come back, all together.
pub const SIMULATE_INCIDENTS: usize = 1000;

/// Clients with an address of their own in a simulation.
pub const SIMULATE_KEYS: u32 = 1 << 20;

/// Keys that are looked up after each change of a backend to see which have moved.
pub const SIMULATE_PROBES: usize = 10_000;

/// Columns of the chart of a simulation.
pub const SIMULATE_COLUMNS: usize = 72;

/// Nodes, capacities and spares in a sizing, and services that one request fans out to.
pub const SIMULATE_COUNT: u32 = 1_000_000_000;

// Balancing tables hold indices of backends as `u16`, and sums of weights as `u32`.
const _: () = assert!(BACKENDS_PER_POOL <= 1 << 16);
const _: () = assert!(ROUND_ROBIN_SLOTS <= u32::MAX as usize);
const _: () = assert!(RING_POINTS <= u32::MAX as usize);
const _: () = assert!(PIPE_MIN <= PIPE_SIZE);
const _: () = assert!(PIPE_SIZE <= RELAY_BUDGET);
const _: () = assert!(COPY_BUFFER <= RELAY_BUDGET);
const _: () = assert!(PIPES_POOLED <= PIPES_PER_WORKER);
// Each pipe is two descriptors; two workers' worth must leave room for everything else.
const _: () = assert!(PIPES_PER_WORKER * 2 < RESERVED_DESCRIPTORS as usize);
const _: () = assert!(ATTEMPTS_MAX <= LOGGED_ATTEMPTS);
const _: () = assert!(CHECK_BYTES <= CHECK_ANSWER);
const _: () = assert!(USER_TIMEOUT_MAX.as_millis() <= i32::MAX as u128);
