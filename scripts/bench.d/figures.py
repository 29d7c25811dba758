"""What is measured. A figure is a function from a `Bench` and a contender's name to values of its rows.

Each measurement starts the contender anew, so that one runs at a time and none has a history.
"""

import contextlib
import json
import os
import socket
import ssl
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from contenders import CONTENDERS, NAMES, WITHOUT_LOG, WITHOUT_SNI, WITHOUT_UDP, WITHOUT_WORKERS, Setup
from processes import PATIENCE, Failed, anonymous_bytes, cpu_seconds, free_port, watched

WARM_UP_SECONDS = 0.3
IDLE_SESSIONS = 3000
LONG_SESSIONS = 200
FEW_SESSIONS, MANY_SESSIONS = 64, 8000
FLOWS = 50
ROUTES = 10_000
# One that the backend answers and closes.
REQUEST = b"1" * 64


@dataclass
class Instance:
    """A contender that runs."""

    child: subprocess.Popen
    plain: int
    sni: int
    udp: int
    # From its start until it served at all of these.
    start_seconds: float

    @property
    def pid(self):
        return self.child.pid


class Bench:
    def __init__(self, processes, load, programs, seconds):
        self.processes, self.load, self.programs, self.seconds = processes, load, programs, seconds
        # The backend's port, and the rate of open-loop requests, when they are known.
        self.backend = self.rate = None
        # The balancer has a core to itself, all that it works for the others.
        first, *others = sorted(os.sched_getaffinity(0))
        self.balancer_cores, self.load_cores = {first}, set(others)
        # Two workers need two cores. On a machine with no more, the load shares them.
        self.two_cores = {first, others[0]}
        self.beside_two = set(others[1:]) or self.two_cores

    @contextlib.contextmanager
    def serving(self):
        """Starts the backend."""
        command = [self.load, "backend"]
        with self.processes.running(self.load_cores, command, stdout=subprocess.PIPE) as child:
            self.backend = int(child.stdout.readline())
            yield

    @contextlib.contextmanager
    def running(self, name, workers=1, cores=None, pools=None, access_log=False):
        """Starts a contender, and waits until it serves."""
        sni = None if name in WITHOUT_SNI else free_port()
        udp = None if name in WITHOUT_UDP else free_port(socket.SOCK_DGRAM)
        with tempfile.TemporaryDirectory() as directory:
            ports = (free_port(), sni, udp, self.backend)
            more = (pools or {"bench": NAMES}, access_log)
            setup = Setup(self.programs[name], Path(directory), workers, *ports, *more)
            command, environment = CONTENDERS[name](setup)
            began = time.monotonic()
            with self.processes.running(cores or self.balancer_cores, command, environment) as child:
                wait_until_served(child, setup.plain, REQUEST)
                if sni:
                    wait_until_served(child, sni, hello([*setup.pools.values()][-1][-1]))
                yield Instance(child, setup.plain, sni, udp, time.monotonic() - began)

    def wait_for_datagrams(self, instance):
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return self.run("datagrams", instance.udp, 0.2, 1)
            except Failed:
                if time.monotonic() > deadline:
                    raise

    def run(self, *load, cores=None):
        """What the load has measured."""
        pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        command = [self.load, *map(str, load)]
        with self.processes.running(cores or self.load_cores, command, **pipe) as child:
            out, err = child.communicate()
        if child.returncode:
            raise Failed(err.decode().strip())
        return json.loads(out)

    @contextlib.contextmanager
    def idle(self, instance, sessions):
        """So many sessions without a byte, connected to the backend."""
        command = [self.load, "idle", str(instance.plain), str(sessions)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with self.processes.running(self.load_cores, command, **pipes) as clients:
            if not clients.stdout.readline():
                raise Failed(clients.log.read_text())
            deadline, before = time.monotonic() + PATIENCE, None
            # Each is two sockets, beside few others.
            while (count := sum(watched(instance.pid))) < 2 * sessions or count != before:
                if time.monotonic() > deadline:
                    raise Failed(f"does not connect {sessions} sessions")
                before = count
                time.sleep(0.05)
            yield
            clients.stdin.close()
            if clients.wait():
                raise Failed(clients.log.read_text())

    def costs(self, instance, kind, port, *more, cores=None):
        """CPU seconds of the balancer in a run of the load, and what that has measured. That of a run
        before, which warms everything up, is its `warm_up`."""
        warm_up = self.run(kind, port, WARM_UP_SECONDS, *more, cores=cores)
        before = cpu_seconds(instance.pid)
        result = self.run(kind, port, self.seconds, *more, cores=cores)
        return cpu_seconds(instance.pid) - before, {**result, "warm_up": warm_up}


def wait_until_served(child, port, request):
    """Tries without a pause to speak of: the answer says how long the start took, too."""
    deadline = time.monotonic() + PATIENCE
    while not served(port, request):
        if child.poll() is not None or time.monotonic() > deadline:
            raise Failed(f"does not serve: {child.log.read_text(errors='replace')}")
        time.sleep(0.001)


def served(port, request):
    try:
        # Traefik forgets connections that come before it knows where to.
        with socket.create_connection(("127.0.0.1", port), timeout=0.1) as client:
            client.sendall(request)
            # To the end, which would otherwise be a reset.
            return client.makefile("rb").read() != b""
    except OSError:
        return False


def hello(name):
    """What a client of TLS sends first."""
    flight = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), flight, server_hostname=name)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return flight.read()


def new(bench, name):
    with bench.running(name) as instance:
        cpu, result = bench.costs(instance, "connections", instance.plain)
    return {"new": cpu / result["count"] * 1e6}


def log(bench, name):
    if name in WITHOUT_LOG:
        return {}
    costs = []
    for access_log in (False, True):
        with bench.running(name, access_log=access_log) as instance:
            cpu, result = bench.costs(instance, "connections", instance.plain)
            if access_log:
                connections = result["warm_up"]["count"] + result["count"]
                wait_until_logged(instance.child.log, connections)
        costs.append(cpu / result["count"])
    off, on = costs
    return {"log": on / off}


def wait_until_logged(path, lines):
    """None may be lost: that would be cheaper."""
    deadline = time.monotonic() + PATIENCE
    while (found := path.read_bytes().count(b"\n")) < lines:
        if time.monotonic() > deadline:
            raise Failed(f"logs {found} of {lines} connections")
        time.sleep(0.05)


def sni(bench, name):
    if name in WITHOUT_SNI:
        return {}
    with bench.running(name) as instance:
        cpu, result = bench.costs(instance, "connections", instance.sni, len(NAMES))
    return {"sni": cpu / result["count"] * 1e6}


def kept(bench, name):
    with bench.running(name) as instance:
        cpu, result = bench.costs(instance, "requests", instance.plain)
    return {"kept": cpu / result["count"] * 1e6}


def bulk(bench, name):
    values = {}
    for streams in (1, 8):
        with bench.running(name) as instance:
            cpu, result = bench.costs(instance, "bulk", instance.plain, streams)
        values[f"bulk-{streams}"] = cpu / result["bytes"] * 1e12
        values[f"through-{streams}"] = result["bytes"] / result["seconds"] / 1e9
    return values


def latency(bench, name):
    rate = half_load(bench)
    with bench.running(name) as instance:
        return added_latency(bench, instance, rate, FEW_SESSIONS)


def busy(bench, name):
    """Latency where each request comes on a session that has been quiet for a while. That costs the load
    more, too, which is to wait for nothing at the rate."""
    rate = half_load(bench) / 2
    with bench.running(name) as instance:
        few, many = (added_latency(bench, instance, rate, sessions) for sessions in (FEW_SESSIONS, MANY_SESSIONS))
    values = {"busy-p50": many["p50"], "busy-p99": many["p99"]}
    # Of what adds nothing that could be told from noise there is no ratio.
    if few["p99"] > 0:
        values["busy-flat"] = many["p99"] / few["p99"]
    return values


def added_latency(bench, instance, rate, sessions):
    """Of requests that are sent when their time has come, whether earlier ones were answered or not."""
    runs = [("requests", port, bench.seconds, rate, sessions) for port in (bench.backend, instance.plain)]
    direct, through = (bench.run(*run) for run in runs)
    return {row: through[f"{row}_us"] - direct[f"{row}_us"] for row in ("p50", "p99")}


def half_load(bench):
    """Half the requests a second that pointsman answers when clients wait for nothing else."""
    if not bench.rate:
        with bench.running("pointsman") as instance:
            result = bench.run("requests", instance.plain, bench.seconds)
        bench.rate = round(result["count"] / result["seconds"] / 2, -2)
    return bench.rate


def datagrams(bench, name):
    if name in WITHOUT_UDP:
        return {}
    values = {}
    for row, *load in (("udp-50", "datagrams", FLOWS), ("udp-1", "datagrams", 1), ("udp-burst", "bursts")):
        kind, *more = load
        with bench.running(name) as instance:
            bench.wait_for_datagrams(instance)
            cpu, result = bench.costs(instance, kind, instance.udp, *more)
        values[row] = cpu / result["count"] * 1e6
    return values


def idle(bench, name):
    with bench.running(name) as instance:
        before = anonymous_bytes(instance.pid)
        with bench.idle(instance, IDLE_SESSIONS):
            after = anonymous_bytes(instance.pid)
    return {"idle": (after - before) / IDLE_SESSIONS}


def start(bench, name):
    if name in WITHOUT_SNI:
        return {}
    pools = {f"pool-{number}": [f"shop-{number}.example.com"] for number in range(ROUTES)}
    with bench.running(name, pools=pools) as instance:
        return {"start": instance.start_seconds}


def scaling(bench, name):
    """Twice the CPU time that one worker has for a connection, to that which two have for it."""
    costs = []
    for workers in (1, 2):
        with bench.running(name, workers, bench.two_cores) as instance:
            cpu, result = bench.costs(instance, "connections", instance.plain, cores=bench.beside_two)
        costs.append(cpu / result["count"])
    one, two = costs
    return {"scaling": 2 * one / two}


def shares(bench, name):
    if name in WITHOUT_WORKERS:
        return {}
    with bench.running(name, 2, bench.two_cores) as instance:
        with bench.idle(instance, LONG_SESSIONS):
            # Each worker has an instance of epoll, which watches both sockets of its sessions.
            *_, smallest, largest = sorted(watched(instance.pid))
    return {"shares": largest / smallest}


FIGURES = {
    "new": new,
    "log": log,
    "sni": sni,
    "kept": kept,
    "bulk": bulk,
    "latency": latency,
    "busy": busy,
    "udp": datagrams,
    "idle": idle,
    "start": start,
    "scaling": scaling,
    "shares": shares,
}
