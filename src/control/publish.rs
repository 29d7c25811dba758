//! Making a configuration the one in force: at the start, and at each reload. All or nothing:
//! sockets are bound and tables built before anything is changed.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, timeout};

use super::checks::{Checks, Clients, most_in_flight};
use super::watch::{Watch, update_panic};
use crate::address::Address;
use crate::config::{self, AccessLog, Config, MaxConnections, Protocol};
use crate::flow::Limits;
use crate::health::State;
use crate::limits::{COMMANDS, READY_DESCRIPTORS_SHARE, RESERVED_DESCRIPTORS, SESSIONS_SHARE};
use crate::net::{datagram, listen};
use crate::snapshot::{self, Backend, Entrance, ListenSocket, Pool, Snapshot};
use crate::state::process::Command;
use crate::state::{AdminState, BackendState, Change, LogMessage, Phase, Process};
use crate::sys;
use crate::sys::socket::TcpOptions;

/// How long a reload waits for the workers to have taken over, before it says so and goes on.
const TAKE_OVER: Duration = Duration::from_secs(1);

/// How long reading the configuration may take.
const READ_CONFIG: Duration = Duration::from_secs(10);

/// Whether an access log could be written to: a look that never waits.
pub type ProbeLog = fn(&AccessLog) -> io::Result<()>;

/// Owns what only control may change.
#[derive(Debug)]
pub struct Publisher {
    pub(super) process: Arc<Process>,
    /// What a reload reads; without it there is nothing to reload.
    path: Option<PathBuf>,
    /// Whether an access log could be written to.
    probe: ProbeLog,
    pub(super) checks: Checks,
    /// What the checks of the configuration in force shake hands with.
    pub(super) clients: Clients,
    watch: Arc<Watch>,
    /// Commands that came during a reload.
    deferred: VecDeque<Command>,
    pub(super) published: watch::Sender<Arc<Snapshot>>,
}

impl Publisher {
    /// Binds and compiles the first configuration, and starts to check its backends.
    ///
    /// # Errors
    ///
    /// One line for each thing that is wrong.
    pub fn prepare(
        process: Arc<Process>,
        config: Config,
        path: Option<PathBuf>,
        probe: ProbeLog,
    ) -> Result<(Publisher, watch::Receiver<Arc<Snapshot>>), Vec<String>> {
        let (snapshot, clients) = prepare(&process, Arc::new(config), None, probe)?;
        take_effect(&process, &snapshot);
        configure_access_log(&process, &snapshot.config);
        let watch = Arc::new(Watch::new(process.clone()));
        let mut checks = Checks::new(watch.clone());
        checks.follow(&snapshot, &clients);
        let (published, snapshots) = watch::channel(Arc::new(snapshot));
        let deferred = VecDeque::new();
        Ok((
            Publisher { process, path, probe, checks, clients, watch, deferred, published },
            snapshots,
        ))
    }

    /// Waits for the first result of every check, but not longer than a check may take, nor when
    /// the process is asked to stop.
    pub async fn first_round(self) -> Publisher {
        let snapshot = self.published.borrow().clone();
        let mut stops = self.process.stops.subscribe();
        tokio::select! {
            () = first_round(&self.checks, snapshot.pools.clone()) => {}
            _ = stops.wait_for(|&count| count > 0) => {}
        }
        snapshot.pools.iter().for_each(|pool| update_panic(pool));
        self
    }

    /// The configuration in force, now and later.
    pub fn subscribe(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.published.subscribe()
    }

    /// Answers commands, and looks at backends as workers ask for it, until nobody can send
    /// anything any more.
    pub async fn serve(
        mut self,
        mut commands: mpsc::Receiver<Command>,
        alarms: mpsc::Receiver<Arc<BackendState>>,
    ) {
        tokio::spawn(self.watch.clone().run(alarms));
        loop {
            let command = match self.deferred.pop_front() {
                Some(command) => command,
                None => match commands.recv().await {
                    Some(command) => command,
                    None => return,
                },
            };
            // Whoever asked may have gone away.
            match command {
                Command::Reload(answer) => self.answer_reload(answer, &mut commands).await,
                Command::Change { pool, backend, change, answer } => {
                    let _gone = answer.send(self.change(&pool, &backend, change).await);
                }
            }
        }
    }

    async fn answer_reload(
        &mut self,
        answer: oneshot::Sender<Result<u64, Vec<String>>>,
        commands: &mut mpsc::Receiver<Command>,
    ) {
        let result = self.reload(commands).await;
        let ok = result.is_ok();
        self.process.reloads[usize::from(!ok)].fetch_add(1, Relaxed);
        self.process.last_reload_ok.store(ok, Relaxed);
        match &result {
            Ok(generation) => tracing::info!(generation, "reloaded"),
            Err(errors) => {
                for error in errors {
                    tracing::error!("reload: {error}");
                }
                tracing::error!("reload failed; the configuration stays as it was");
            }
        }
        let _gone = answer.send(result);
    }

    async fn reload(&mut self, commands: &mut mpsc::Receiver<Command>) -> Result<u64, Vec<String>> {
        self.still_accepting()?;
        let Some(path) = self.path.clone() else {
            return Err(vec!["started from flags: there is no file to read again".to_owned()]);
        };
        // A pipe that nobody writes to would be read for ever, and no reload be answered any more.
        let load = tokio::task::spawn_blocking(move || config::load(&path));
        let load = timeout(READ_CONFIG, load).await;
        let config = load
            .map_err(|_| vec!["the configuration cannot be read in time".to_owned()])?
            .map_err(|error| vec![format!("reading the configuration: {error}")])?
            .map_err(|errors| errors.lines().collect::<Vec<_>>())?;
        let before = self.published.borrow().clone();
        let fixed = fixed_at_start(&before.config, &config);
        if !fixed.is_empty() {
            return Err(fixed);
        }
        let (snapshot, clients) =
            prepare(&self.process, Arc::new(config), Some(&before), self.probe)?;
        let generation = snapshot.generation;
        // A pool that may have nothing to offer gets its first round before its first connection.
        self.checks.add(&snapshot, &clients);
        let new: Vec<_> = snapshot.pools.iter().filter(|pool| undecided(pool)).cloned().collect();
        let round = first_round(&self.checks, new);
        self.change_during(round, commands).await;
        self.still_accepting()?;
        if before.config.access_log != snapshot.config.access_log {
            let (process, config) = (self.process.clone(), snapshot.config.clone());
            let told = tokio::task::spawn_blocking(move || configure_access_log(&process, &config));
            told.await.map_err(|error| vec![format!("telling the access log: {error}")])?;
        }
        self.checks.follow(&snapshot, &clients);
        self.clients = clients;
        drop(before);
        self.publish(snapshot, update_panic).await;
        Ok(generation)
    }

    /// Waits for `round`. A new pool that is slow to answer keeps no operator from taking a backend
    /// out; what would publish something else waits for its turn.
    async fn change_during(
        &mut self,
        round: impl Future<Output = ()>,
        commands: &mut mpsc::Receiver<Command>,
    ) {
        let mut round = std::pin::pin!(round);
        loop {
            let command = tokio::select! {
                () = &mut round => return,
                command = commands.recv() => command,
            };
            match command {
                Some(Command::Change { pool, backend, change, answer }) if is_light(&change) => {
                    let _gone = answer.send(self.change(&pool, &backend, change).await);
                }
                Some(command) if self.deferred.len() < COMMANDS => self.deferred.push_back(command),
                // Who asked hears that nobody answers.
                Some(_) => {}
                None => return round.await,
            }
        }
    }

    /// Puts the snapshot in force, and `panic` into each pool.
    pub(super) async fn publish(&self, snapshot: Snapshot, panic: fn(&Pool)) {
        take_effect(&self.process, &snapshot);
        snapshot.pools.iter().for_each(|pool| panic(pool));
        let generation = snapshot.generation;
        self.published.send_replace(Arc::new(snapshot));
        self.taken_over(generation).await;
        self.process.registry.sweep();
    }

    /// Sockets that are bound once the workers are draining would be accepted from by nobody.
    pub(super) fn still_accepting(&self) -> Result<(), Vec<String>> {
        match *self.process.phase.borrow() {
            Phase::Running | Phase::Leaving => Ok(()),
            Phase::Draining { .. } | Phase::Stopping => {
                Err(vec!["the process is stopping and accepts no connections any more".to_owned()])
            }
        }
    }

    /// Waits until every worker runs on this generation: from then on no connection is accepted
    /// by what the configuration no longer has.
    async fn taken_over(&self, generation: u64) {
        let deadline = Instant::now() + TAKE_OVER;
        let behind = |process: &Process| {
            process.workers.iter().any(|worker| worker.generation.load(Relaxed) < generation)
        };
        while behind(&self.process) && !self.published.is_closed() {
            if Instant::now() > deadline {
                tracing::warn!(generation, "a worker is slow to take over the configuration");
                return;
            }
            sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Whether a change touches neither tables nor checks.
fn is_light(change: &Change) -> bool {
    change.weight.is_none() && change.admin != Some(AdminState::Maintenance)
}

/// Nothing is known to be usable, and something may turn out to be.
fn undecided(pool: &Arc<Pool>) -> bool {
    let some = |state| {
        let is = |backend: &Backend| {
            let standing = backend.state.standing();
            backend.weight > 0 && standing.is_ready() && standing.state() == state
        };
        pool.backends.iter().any(is)
    };
    pool.health.is_some() && some(State::Unknown) && !some(State::Up)
}

/// At most `interval + timeout` of the most patient pool.
fn first_round(checks: &Checks, pools: Vec<Arc<Pool>>) -> impl Future<Output = ()> + use<> {
    let patience = |pool: &Arc<Pool>| pool.health.as_ref().map(|h| h.interval + h.timeout);
    let longest = pools.iter().filter_map(patience).max().unwrap_or_default();
    checks.first_round(pools, longest)
}

/// Settings that a running process cannot change.
fn fixed_at_start(before: &Config, after: &Config) -> Vec<String> {
    let mut errors = Vec::new();
    if before.workers != after.workers {
        errors.push("workers: a reload cannot change it; restart".to_owned());
    }
    if before.admin != after.admin {
        errors.push("admin: a reload cannot change it; restart".to_owned());
    }
    errors
}

/// Everything that can go wrong, before anything is changed. Clients can connect to a new address
/// only when all of them could be bound.
fn prepare(
    process: &Process,
    config: Arc<Config>,
    before: Option<&Snapshot>,
    probe: ProbeLog,
) -> Result<(Snapshot, Clients), Vec<String>> {
    let clients = Clients::prepare(&config)?;
    let mut errors = Vec::new();
    let mut sockets = Vec::new();
    for listener in &config.listeners {
        let mut bound: Vec<Arc<ListenSocket>> = Vec::new();
        for address in &listener.bind {
            let free = |socket: &&Arc<_>| !bound.iter().any(|taken| Arc::ptr_eq(taken, socket));
            let known = before.and_then(|snapshot| snapshot.sockets(listener, address).find(free));
            match known {
                Some(socket) => bound.push(socket.clone()),
                None => match bind(address, listener, process.registry.workers()) {
                    Ok(socket) => bound.push(Arc::new(socket)),
                    Err(e) => errors.push(format!("listener {}: {e}", listener.name)),
                },
            }
        }
        sockets.push(bound);
    }
    if errors.is_empty() {
        let new = sockets.iter().flatten().filter(|socket| !socket.listens());
        let faults =
            new.filter_map(|socket| Some(cannot_listen(&socket.bind, &socket.listen().err()?)));
        errors.extend(faults);
    }
    if errors.is_empty()
        && let Some(log) = &config.access_log
        && let Err(error) = probe(log)
    {
        errors.push(format!("access_log: cannot be written: {error}"));
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let generation = before.map_or(0, |snapshot| snapshot.generation) + 1;
    let snapshot = snapshot::build(config, generation, sockets, &process.registry)
        .map_err(|error| vec![error.to_string()])?;
    Ok((snapshot, clients))
}

fn bind(
    address: &Address,
    listener: &config::Listener,
    workers: usize,
) -> Result<ListenSocket, String> {
    let fault = |error| cannot_listen(address, &error);
    let (protocol, v6_only) = (listener.protocol, listener.v6_only);
    if let (Protocol::Udp, Some(ip)) = (protocol, address.ip()) {
        let buffer = listener.udp.receive_buffer;
        let bound = datagram::bind::bind(ip, v6_only, workers, buffer).map_err(fault)?;
        let local = Address::Ip(bound.local);
        return Ok(ListenSocket::new(address.clone(), protocol, v6_only, local, bound.fds, None));
    }
    let bound = listen::bind(address, v6_only, workers).map_err(fault)?;
    if address.ip().is_some() {
        // Before anybody can connect: connections inherit what the socket has at that moment.
        let options = TcpOptions::from(&listener.timeouts);
        let set = |fd| sys::socket::set_tcp_options(fd, &options);
        bound.fds.iter().try_for_each(set).map_err(fault)?;
    }
    Ok(ListenSocket::new(address.clone(), protocol, v6_only, bound.local, bound.fds, bound.file))
}

fn cannot_listen(address: &Address, error: &io::Error) -> String {
    format!("cannot listen on {address}: {error}")
}

/// Tells the access log's writer its target, before any worker can send it a record: what comes
/// to a writer without a target is lost. Waits while the queue is full.
fn configure_access_log(process: &Process, config: &Config) {
    // Without a writer the process is about to end.
    let _ended = process.access_log.send(LogMessage::Configure(config.access_log.clone()));
}

/// What has to be in place when the first connection of the new configuration comes.
fn take_effect(process: &Process, snapshot: &Snapshot) {
    let ready = max_ready(process, snapshot);
    process.max_ready.store(ready, Relaxed);
    let most = max_sessions(snapshot, ready);
    process.max_sessions.store(most, Relaxed);
    process.max_flows.store(max_flows(snapshot, most), Relaxed);
    process.generation.store(snapshot.generation, Relaxed);
    // The same for all listeners.
    if let Some(entrance) = snapshot.listeners.first() {
        process.max_hello_bytes.store(entrance.listener.preread.total_bytes, Relaxed);
    }
    for Entrance { listener, .. } in &snapshot.listeners {
        if let (Some(sources), Some(limits)) = (&listener.sources, listener.limits.per_source) {
            sources.set_limits(Limits { flows: limits.flows, rate: limits.rate });
        }
    }
    for pool in &snapshot.pools {
        for backend in &pool.backends {
            backend.state.set_name(backend.name.clone());
        }
        pool.set_bounds();
        // Checks of the configuration before this one went on while it was built.
        pool.weigh();
    }
}

/// Connections that may be kept ready: as many as the configuration asks for, within their share of
/// the descriptors.
fn max_ready(process: &Process, snapshot: &Snapshot) -> u32 {
    let of_pool = |pool: &Pool| pool.backends.len() as u64 * u64::from(pool.ready.count);
    let a_worker: u64 = snapshot.kept_ready().into_iter().map(|pool| of_pool(pool)).sum();
    let wanted = a_worker * process.registry.workers() as u64;
    let most = sys::process::descriptor_limit() / READY_DESCRIPTORS_SHARE;
    if wanted > most {
        tracing::warn!(wanted, most, "`connect.ready` asks for more descriptors than it may have");
    }
    u32::try_from(wanted.min(most)).unwrap_or(u32::MAX)
}

/// How many of the sessions may be flows.
fn max_flows(snapshot: &Snapshot, max_sessions: u32) -> u32 {
    let mut protocols = snapshot.listeners.iter().map(|entrance| entrance.listener.protocol);
    let tcp = protocols.any(|protocol| protocol == Protocol::Tcp);
    if tcp { max_sessions - max_sessions / SESSIONS_SHARE } else { max_sessions }
}

/// A session needs two descriptors.
fn max_sessions(snapshot: &Snapshot, ready: u32) -> u32 {
    match snapshot.config.max_connections {
        MaxConnections::Count(count) => count,
        MaxConnections::Off => u32::MAX,
        MaxConnections::Auto => {
            let descriptors = sys::process::descriptor_limit();
            let checked = snapshot.pools.iter().filter(|pool| pool.health.is_some());
            let checked: usize = checked.map(|pool| pool.backends.len()).sum();
            let checks = checked.min(most_in_flight()) as u64;
            let reserved = RESERVED_DESCRIPTORS + checks + u64::from(ready);
            let reserved = reserved.min(descriptors / 2);
            u32::try_from((descriptors - reserved) / 2).unwrap_or(u32::MAX)
        }
    }
}
