//! Every metric family there is: name, type, help, and where its value comes from.

use super::metrics::{Family, Kind, Series};
use super::readings::{Backend, Listener, Machine, Pool, Whole, Worker};
use crate::health::State;
use crate::state::histogram::Totals;
use crate::state::{AdminState, ConnectFailure, DropReason, ListenerState, PoolState, Termination};

/// A family of histograms over things of type `T`.
pub(super) struct HistogramFamily<T> {
    pub name: &'static str,
    pub help: &'static str,
    pub read: fn(&T) -> Totals,
}

const fn counter<T>(
    name: &'static str,
    help: &'static str,
    emit: fn(&T, &mut Series<'_>),
) -> Family<T> {
    Family { name, help, kind: Kind::Counter, emit }
}

const fn gauge<T>(
    name: &'static str,
    help: &'static str,
    emit: fn(&T, &mut Series<'_>),
) -> Family<T> {
    Family { name, help, kind: Kind::Gauge, emit }
}

/// Label `listener`.
pub(super) const LISTENER: &[Family<Listener>] = &[
    counter("pointsman_connections_total", "Accepted connections.", |l, out| {
        out.is(l.counts.opened);
    }),
    gauge("pointsman_connections_active", "Connections open at the moment.", |l, out| {
        out.is(l.counts.active);
    }),
    counter(
        "pointsman_connections_closed_total",
        "Ended connections, by the reason that the access log gives.",
        |l, out| {
            for termination in Termination::ALL {
                let count = l.counts.closed[termination as usize];
                out.with("termination", termination.name(), count);
            }
        },
    ),
    counter(
        "pointsman_bytes_total",
        "Bytes passed on, in: from clients, out: to clients.",
        |l, out| {
            out.with("direction", "in", l.counts.bytes_in);
            out.with("direction", "out", l.counts.bytes_out);
        },
    ),
    counter(
        "pointsman_accept_pauses_total",
        "Times that accepting paused for want of descriptors or memory.",
        |l, out| out.is(l.counts.accept_pauses),
    ),
    counter(
        "pointsman_ech_total",
        "TLS hellos with an ECH extension, GREASE included.",
        |l, out| out.is(l.counts.ech),
    ),
    counter("pointsman_udp_flows_total", "Flows that began; of UDP listeners.", |l, out| {
        out.maybe(l.flows.map(|_| l.counts.opened));
    }),
    gauge("pointsman_udp_flows_active", "Flows at the moment; of UDP listeners.", |l, out| {
        out.maybe(l.flows.map(|_| l.counts.active));
    }),
    gauge("pointsman_udp_flows_max", "Flows that a UDP listener may have.", |l, out| {
        out.maybe(l.flows.map(u64::from));
    }),
    counter(
        "pointsman_udp_datagrams_total",
        "Datagrams passed on, in: from clients, out: to clients.",
        |l, out| {
            if l.flows.is_some() {
                out.with("direction", "in", l.counts.datagrams_in);
                out.with("direction", "out", l.counts.datagrams_out);
            }
        },
    ),
    counter("pointsman_udp_dropped_total", "Datagrams that went nowhere, by reason.", |l, out| {
        if l.flows.is_some() {
            for reason in DropReason::ALL {
                out.with("reason", reason.name(), l.counts.dropped[reason as usize]);
            }
        }
    }),
];

/// Labels `pool` and `backend`.
pub(super) const BACKEND: &[Family<Backend>] = &[
    gauge("pointsman_backend_state", "1 for the state that the backend is in.", |b, out| {
        for state in State::ALL {
            out.with("state", state.name(), u64::from(b.state == state));
        }
    }),
    gauge(
        "pointsman_backend_admin",
        "1 for the administrative state that the backend is in.",
        |b, out| {
            for admin in AdminState::ALL {
                out.with("admin", admin.name(), u64::from(b.admin == admin));
            }
        },
    ),
    gauge("pointsman_backend_weight", "Weight in force.", |b, out| {
        out.maybe(b.weight.map(u64::from));
    }),
    counter("pointsman_backend_connections_total", "Established connections.", |b, out| {
        out.is(b.counts.connections);
    }),
    gauge(
        "pointsman_backend_connections_active",
        "Sessions and connection attempts at the moment.",
        |b, out| out.is(u64::from(b.counts.active)),
    ),
    counter(
        "pointsman_backend_connect_failures_total",
        "Failed attempts to connect, by reason.",
        |b, out| {
            for failure in ConnectFailure::ALL {
                out.with("reason", failure.name(), b.counts.failures[failure as usize]);
            }
        },
    ),
    counter(
        "pointsman_backend_bytes_total",
        "Bytes passed on, in: to the backend, out: from it.",
        |b, out| {
            out.with("direction", "in", b.counts.bytes_in);
            out.with("direction", "out", b.counts.bytes_out);
        },
    ),
    counter(
        "pointsman_backend_ejections_total",
        "Times that real connections got the backend ejected.",
        |b, out| out.is(b.counts.ejections),
    ),
    counter("pointsman_backend_checks_total", "Finished health checks.", |b, out| {
        out.with("result", "pass", b.counts.checks_passed);
        out.with("result", "fail", b.counts.checks_failed);
    }),
];

/// Label `pool`.
pub(super) const POOL: &[Family<Pool>] = &[
    counter("pointsman_pool_retries_total", "Attempts to connect after a failed one.", |p, out| {
        out.is(p.retries);
    }),
    counter("pointsman_pool_hedges_total", "Attempts beside one that was pending.", |p, out| {
        out.is(p.hedges);
    }),
    counter(
        "pointsman_pool_replays_total",
        "Hellos that went to another backend after one had ended the connection without a byte.",
        |p, out| out.is(p.replays),
    ),
    counter(
        "pointsman_pool_budget_exhausted_total",
        "Attempts that the retry budget did not allow.",
        |p, out| out.is(p.budget_exhausted),
    ),
    counter(
        "pointsman_pool_no_backend_total",
        "Connections that found no backend to go to.",
        |p, out| out.is(p.no_backend),
    ),
    gauge("pointsman_pool_waiting", "Connections that wait for a place.", |p, out| {
        out.is(u64::from(p.waiting));
    }),
    gauge("pointsman_pool_panic", "1 while the state of backends is ignored.", |p, out| {
        out.is(u64::from(p.panic));
    }),
    gauge(
        "pointsman_pool_ready_connections",
        "Unused connections to backends that are kept ready.",
        |p, out| out.maybe(p.ready.map(|ready| u64::from(ready.kept))),
    ),
    counter(
        "pointsman_pool_ready_total",
        "Ready connections used, missed by a session, and lost: closed by the backend unused.",
        |p, out| {
            if let Some(ready) = p.ready {
                out.with("result", "used", ready.used);
                out.with("result", "missed", ready.missed);
                out.with("result", "lost", ready.lost);
            }
        },
    ),
    gauge(
        "pointsman_pool_table_digest",
        "48 bits, equal on every instance that hashes alike.",
        |p, out| out.maybe(p.digest),
    ),
];

/// Label `worker`.
pub(super) const WORKER: &[Family<Worker>] = &[
    gauge("pointsman_worker_connections_active", "Sessions of this worker.", |w, out| {
        out.is(u64::from(w.active));
    }),
    gauge(
        "pointsman_worker_busy_ratio",
        "Share of the last second in which this worker was not waiting.",
        |w, out| out.ratio(f64::from(w.busy_permille) / 1000.0),
    ),
];

/// No label.
pub(super) const PROCESS: &[Family<Whole>] = &[
    gauge(
        "pointsman_config_generation",
        "Generation of the configuration in force, counted from 1.",
        |p, out| out.is(p.generation),
    ),
    counter("pointsman_config_reloads_total", "Reloads, by result.", |p, out| {
        out.with("result", "success", p.reloads[0]);
        out.with("result", "failure", p.reloads[1]);
    }),
    gauge("pointsman_config_last_reload_success", "1 unless the last reload failed.", |p, out| {
        out.is(u64::from(p.last_reload_ok))
    }),
    counter(
        "pointsman_access_log_dropped_total",
        "Access log records that were lost: queue full, or the write failed.",
        |p, out| out.is(p.access_log_dropped),
    ),
    gauge("pointsman_build_info", "1; the version is in the label.", |_, out| {
        out.with("version", env!("CARGO_PKG_VERSION"), 1);
    }),
];

/// No label; the names every Prometheus client uses, without our prefix.
pub(super) const MACHINE: &[Family<Machine>] = &[
    gauge("process_open_fds", "Open file descriptors.", |m, out| out.maybe(m.open_fds)),
    gauge("process_max_fds", "Largest number of open file descriptors.", |m, out| {
        out.maybe(m.max_fds);
    }),
    gauge("process_resident_memory_bytes", "Resident memory.", |m, out| {
        out.maybe(m.resident_bytes);
    }),
    gauge("process_virtual_memory_bytes", "Virtual memory.", |m, out| {
        out.maybe(m.virtual_bytes);
    }),
    gauge("process_start_time_seconds", "Start of the process since the epoch.", |m, out| {
        if let Some(seconds) = m.start_seconds {
            out.ratio(seconds);
        }
    }),
    gauge("process_threads", "Operating system threads.", |m, out| out.maybe(m.threads)),
];

/// Of the one counter that is not a whole number.
pub(super) const CPU_NAME: &str = "process_cpu_seconds_total";
pub(super) const CPU_HELP: &str = "User and system time of the process.";

/// Label `listener`.
pub(super) const LISTENER_HISTOGRAMS: &[HistogramFamily<ListenerState>] = &[
    HistogramFamily {
        name: "pointsman_session_seconds",
        help: "Duration of connections, accept to end.",
        read: |l| l.session_seconds.totals(),
    },
    HistogramFamily {
        name: "pointsman_preread_seconds",
        help: "From accepted to a complete TLS hello.",
        read: |l| l.preread_seconds.totals(),
    },
];

/// Label `pool`.
pub(super) const POOL_HISTOGRAMS: &[HistogramFamily<PoolState>] = &[
    HistogramFamily {
        name: "pointsman_pool_connect_seconds",
        help: "Time to connect to a backend, of attempts that succeeded.",
        read: |p| p.connect_seconds.totals(),
    },
    HistogramFamily {
        name: "pointsman_pool_first_byte_seconds",
        help: "From connected to the backend's first byte.",
        read: |p| p.first_byte_seconds.totals(),
    },
];
