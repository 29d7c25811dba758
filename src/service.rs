//! Puts the parts together: binds, checks, starts workers, control and the admin server; and
//! takes them apart again.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{self, TrySendError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use crate::address::Address;
use crate::config::{Config, Workers};
use crate::control::{Publisher, lifecycle, signals};
use crate::observe::access_log;
use crate::observe::admin::{self, AdminListener, Context};
use crate::observe::log::LogHandle;
use crate::proxy::exchange;
use crate::proxy::worker::{self, Starting, WorkerThread};
use crate::snapshot::Snapshot;
use crate::state::{LogMessage, Phase, Process};
use crate::sys;

/// Threads of the control plane: checks, the admin server, reloads. They hardly ever work at the
/// same time, but a scrape of thousands of backends must not delay a check.
const CONTROL_THREADS: usize = 2;

/// What the access log's writer gets to write what is queued at the end.
const LAST_RECORDS: Duration = Duration::from_secs(5);

/// A running balancer.
#[derive(Debug)]
pub struct Service {
    process: Arc<Process>,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    admin: Option<Address>,
    workers: Vec<WorkerThread>,
    access_log: JoinHandle<()>,
    control: Runtime,
}

/// Why a balancer did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address could not be listened on, or a log not be written.
    #[error("{}", .0.join("\n"))]
    Configuration(Vec<String>),
    /// The admin server's address could not be listened on.
    #[error("admin: cannot listen on {address}: {error}")]
    Admin {
        /// The address.
        address: Address,
        /// Why not.
        error: io::Error,
    },
    /// A thread or a signal handler could not be had.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

/// A worker, or a part of one that is to last, ended in a panic, which is a defect; all were stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a worker ended in a panic; the process has stopped")]
pub struct WorkerPanicked;

impl Service {
    /// Starts everything; returns when it accepts connections. A reload reads `path`, and applies
    /// what it says of logging to `log`.
    ///
    /// # Errors
    ///
    /// Whatever keeps it from accepting. Nothing is left behind then.
    pub fn start(
        config: Config,
        path: Option<PathBuf>,
        log: Option<LogHandle>,
    ) -> Result<Service, StartError> {
        sys::process::raise_descriptor_limit();
        let count = match config.workers {
            Workers::Auto => sys::process::usable_cores(),
            Workers::Count(count) => count.get(),
        };
        let (process, inbox) = Process::new(count);
        let control = Builder::new_multi_thread()
            .worker_threads(CONTROL_THREADS)
            .thread_name("control")
            .enable_all()
            .build()?;
        let admin = config.admin.as_ref().map(|admin| bind_admin(&admin.bind)).transpose()?;
        let address = admin.as_ref().map(|admin| admin.local().clone());
        let access_log = access_log::start(process.clone(), inbox.records)?;
        let publisher = control.block_on(async {
            signals::handle(&process)?;
            let (publisher, snapshots) =
                Publisher::prepare(process.clone(), config, path, access_log::probe)
                    .map_err(StartError::Configuration)?;
            if let Some(log) = log {
                follow_log(snapshots.clone(), log);
            }
            if let Some(admin) = admin {
                let context = Arc::new(Context::new(process.clone(), snapshots.clone()));
                tokio::spawn(async move {
                    let Err(error) = admin::serve(admin, context).await;
                    tracing::error!(%error, "the admin server has ended");
                });
            }
            tokio::spawn(lifecycle::run(process.clone(), snapshots));
            Ok::<_, StartError>(publisher)
        });
        let publisher = match publisher {
            Ok(publisher) => publisher,
            Err(error) => {
                finish_access_log(&process, access_log);
                return Err(error);
            }
        };
        let snapshots = publisher.subscribe();
        let publisher = control.block_on(publisher.first_round());
        let (exchange, inboxes) = exchange::exchange(count);
        let workers = (0..)
            .zip(inboxes)
            .map(|(index, inbox)| {
                let hands = (exchange.clone(), inbox);
                worker::start(index, process.clone(), hands, snapshots.clone())
            })
            .collect::<io::Result<Vec<_>>>()
            // All of them at once.
            .and_then(|all| all.into_iter().map(Starting::finish).collect::<io::Result<Vec<_>>>())
            .inspect_err(|_| {
                // Those that did start.
                process.phase.send_replace(Phase::Stopping);
            })?;
        control.spawn(publisher.serve(inbox.commands, inbox.alarms));
        let runtimes = workers.iter().map(|worker| worker.runtime.clone()).collect();
        control.spawn(measure_workers(process.clone(), runtimes));
        process.serving.store(true, Relaxed);
        let service = Service { process, snapshots, admin: address, workers, access_log, control };
        service.announce();
        Ok(service)
    }

    /// What its threads share.
    pub fn process(&self) -> &Arc<Process> {
        &self.process
    }

    /// The configuration in force.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshots.borrow().clone()
    }

    /// Where the admin server listens, if there is one.
    pub fn admin(&self) -> Option<&Address> {
        self.admin.as_ref()
    }

    /// Begins a graceful stop, as SIGTERM does.
    pub fn stop(&self) {
        self.process.stops.send_modify(|count| *count += 1);
    }

    /// Waits until it has stopped, by a signal or by [`Service::stop`].
    ///
    /// # Errors
    ///
    /// It has stopped because a worker ended in a panic.
    pub fn wait(self) -> Result<(), WorkerPanicked> {
        for worker in self.workers {
            // An error is a panic, which has been reported as such.
            let _panicked = worker.thread.join();
        }
        finish_access_log(&self.process, self.access_log);
        self.control.shutdown_timeout(Duration::from_millis(100));
        tracing::info!("stopped");
        if self.process.panicked.load(Relaxed) { Err(WorkerPanicked) } else { Ok(()) }
    }

    fn announce(&self) {
        let snapshot = self.snapshot();
        for entrance in &snapshot.listeners {
            for socket in &entrance.sockets {
                let listener = &entrance.listener;
                tracing::info!(listener = %listener.name, address = %socket.local, "listening");
            }
        }
        let workers = self.workers.len();
        let max_connections = self.process.max_sessions.load(Relaxed);
        let version = env!("CARGO_PKG_VERSION");
        match &self.admin {
            Some(admin) => tracing::info!(version, workers, max_connections, %admin, "ready"),
            None => tracing::info!(version, workers, max_connections, "ready"),
        }
    }
}

fn bind_admin(address: &Address) -> Result<AdminListener, StartError> {
    admin::bind(address).map_err(|error| StartError::Admin { address: address.clone(), error })
}

/// Makes the program's log follow the configuration.
fn follow_log(mut snapshots: watch::Receiver<Arc<Snapshot>>, log: LogHandle) {
    tokio::spawn(async move {
        loop {
            log.set(snapshots.borrow_and_update().config.log);
            if snapshots.changed().await.is_err() {
                return;
            }
        }
    });
}

/// Waits for the queued records to be written, but not for ever.
fn finish_access_log(process: &Process, writer: JoinHandle<()>) {
    let (done, finished) = mpsc::channel();
    let deadline = Instant::now() + LAST_RECORDS;
    let mut message = LogMessage::Finish(done);
    // The queue may be full, and the writer wait for somebody to read what it writes.
    while let Err(refused) = process.access_log.try_send(message) {
        let (TrySendError::Full(unsent) | TrySendError::Disconnected(unsent)) = refused;
        message = unsent;
        if Instant::now() > deadline || writer.is_finished() {
            break;
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
    let patience = deadline.saturating_duration_since(Instant::now());
    if finished.recv_timeout(patience).is_err() {
        tracing::warn!("the access log could not be finished: records are lost");
        return;
    }
    if writer.join().is_err() {
        tracing::error!("the access log's writer ended in a panic");
    }
}

/// Keeps each worker's busy share of the last second.
async fn measure_workers(process: Arc<Process>, runtimes: Vec<tokio::runtime::Handle>) {
    let busy = |runtime: &tokio::runtime::Handle| runtime.metrics().worker_total_busy_duration(0);
    let mut before: Vec<Duration> = runtimes.iter().map(busy).collect();
    let mut since = tokio::time::Instant::now();
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let elapsed = since.elapsed();
        since = tokio::time::Instant::now();
        for (index, runtime) in runtimes.iter().enumerate() {
            let now = busy(runtime);
            let share = (now - before[index]).as_secs_f64() / elapsed.as_secs_f64();
            before[index] = now;
            let permille = (share.clamp(0.0, 1.0) * 1000.0) as u32;
            process.workers.shard(index).busy_permille.store(permille, Relaxed);
        }
    }
}
