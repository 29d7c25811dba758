"""Processes on chosen cores, and what /proc says of them."""

import os
import re
import signal
import socket
import subprocess
from contextlib import contextmanager
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")
PATIENCE = 20


class Failed(Exception):
    """A program does not start, ends, or does not do what it is measured for."""


class Processes:
    """All processes that are started. Each is a group of its own, so that none outlives this one."""

    def __init__(self, directory):
        self.directory, self.groups, self.started = Path(directory), [], 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for group in reversed(self.groups):
            end(group, patience=0)

    @contextmanager
    def running(self, cores, command, environment=None, **options):
        self.started += 1
        log = self.directory / f"log.{self.started}"
        with open(log, "wb") as output:
            child = subprocess.Popen(
                command,
                **{"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output, **options},
                env={**os.environ, **(environment or {})},
                start_new_session=True,
                preexec_fn=lambda: os.sched_setaffinity(0, cores),
            )
        child.log = log
        self.groups.append(child)
        try:
            yield child
        finally:
            end(child, PATIENCE)
            self.groups.remove(child)
            log.unlink()


def end(child, patience):
    child.terminate()
    try:
        child.wait(patience)
    except subprocess.TimeoutExpired:
        pass
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()


def free_port(kind=socket.SOCK_STREAM):
    with socket.socket(type=kind) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def tree(pid):
    """A process and all that come from it."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield from tree(child)
    yield pid


def cpu_seconds(pid):
    ticks = 0
    for process in tree(pid):
        fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / TICK


def watched(pid):
    """How many descriptors each epoll instance watches."""
    counts = []
    for process in tree(pid):
        found = set()
        for path in Path(f"/proc/{process}/fdinfo").iterdir():
            descriptors = frozenset(re.findall(r"^tfd:\s*(\d+)", path.read_text(), re.MULTILINE))
            # An instance may have two descriptors itself.
            if descriptors and descriptors not in found:
                found.add(descriptors)
                counts.append(len(descriptors))
    return counts


def anonymous_bytes(pid):
    rollups = (Path(f"/proc/{process}/smaps_rollup").read_text() for process in tree(pid))
    return sum(int(re.search(r"Anonymous:\s+(\d+)", text)[1]) for text in rollups) * 1024
