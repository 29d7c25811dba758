"""Medians, ratios and goals as a Markdown table."""

import math
import statistics
from dataclasses import dataclass


@dataclass
class Row:
    title: str
    digits: int = 0
    # Goals: at most so many times a peer's figure, or the best peer's; a bound.
    peers: tuple = ()
    best: float | None = None
    most: float | None = None
    least: float | None = None


NEW_GOALS = (("HAProxy", 0.90), ("nginx", 0.95))
BULK_GOALS = (("HAProxy", 0.45), ("nginx", 0.45), ("Envoy", 0.90))

UDP_GOALS = (("nginx", 0.80), ("Envoy", 0.65))
BURST_GOALS = (("nginx", 0.40),)

ROWS = {
    "new": Row("CPU per new connection (connect, one request, close), µs", 1, NEW_GOALS),
    "log": Row("CPU per new connection, with an access log to without", 2, most=1.05),
    "sni": Row("CPU per new connection routed by SNI among 1,000 names, µs", 1, NEW_GOALS),
    "kept": Row("CPU per request on a kept connection, µs", 1, best=0.95),
    "bulk-1": Row("CPU per GB, 1 stream, ms", 0, BULK_GOALS),
    "bulk-8": Row("CPU per GB, 8 streams, ms", 0, BULK_GOALS),
    "through-1": Row("throughput, 1 stream, GB/s", 2),
    "through-8": Row("throughput, 8 streams, GB/s", 2),
    "p50": Row("added latency at half load, p50, µs"),
    "p99": Row("added latency at half load, p99, µs", best=1.0),
    "busy-p50": Row("added latency at a quarter, 8,000 sessions, p50, µs"),
    "busy-p99": Row("added latency at a quarter, 8,000 sessions, p99, µs", best=1.0),
    "busy-flat": Row("added latency at a quarter, p99, 8,000 sessions to 64", 2, most=1.5),
    "udp-50": Row("CPU per relayed datagram, 50 flows with one in flight each, µs", 2, UDP_GOALS),
    "udp-1": Row("CPU per relayed datagram, one flow with one in flight, µs", 2),
    "udp-burst": Row("CPU per relayed datagram, bursts of one flow, µs", 3, BURST_GOALS),
    "idle": Row("memory per idle session (user space), bytes", most=2000),
    "start": Row("start with 10,000 host names, each with a pool of its own, s", 2, most=1),
    "scaling": Row("new connections in a second of CPU time a worker, two workers to one", 2, least=1.8),
    "shares": Row("200 long sessions on two workers, largest share to smallest", 2, most=1.15),
}


def table(results, versions):
    """`results` is row to contender to the values of all rounds."""
    heads = [f"{name} {version}" for name, version in versions.items()]
    lines = [f"| one worker | {' | '.join(heads)} | goal |", "|---" * (len(heads) + 2) + "|"]
    for key, row in ROWS.items():
        if values := results.get(key):
            cells = [cell(row, values, name) for name in versions]
            lines.append(f"| {row.title} | {' | '.join(cells)} | {verdict(row, values)} |")
    return "\n".join(lines)


def cell(row, values, name):
    rounds = measured(values, name)
    if not rounds:
        return "–"
    number = lambda value: f"{value:,.{row.digits}f}"
    text = number(statistics.median(rounds))
    if len(rounds) > 1:
        text += f" ({number(min(rounds))}–{number(max(rounds))})"
    factor = None if name == "pointsman" else ratio(values, name)
    return f"{text} ×{1 / factor:.2f}" if factor else text


def measured(values, name):
    return [value for value in values.get(name, []) if value is not None]


def ratio(values, peer):
    """pointsman's figure to a peer's: the median of the ratios of rounds, in which the two are measured
    moments apart, so that what a machine does meanwhile counts for both. Where that is nothing or less in
    a round, as differences may be, the ratio of medians; None where there is none of these either."""
    rounds = zip(values.get("pointsman", []), values.get(peer, []))
    pairs = [pair for pair in rounds if None not in pair]
    if pairs and min(map(min, pairs)) <= 0:
        pairs = [tuple(map(statistics.median, zip(*pairs)))]
    if not pairs or min(map(min, pairs)) <= 0:
        return None
    return statistics.median(own / other for own, other in pairs)


def verdict(row, values):
    if not (own := measured(values, "pointsman")):
        return ""
    peers = [name for name in values if name != "pointsman" and measured(values, name)]
    wanted = goals(row, statistics.median(own), {name: ratio(values, name) for name in peers})
    missed = [text for text, met in wanted if not met]
    return f"**missed**: {', '.join(missed)}" if missed else "met" if wanted else ""


def goals(row, own, ratios):
    """The text of each goal that can be judged, and whether it is met."""
    wanted = []
    for family, most in row.peers:
        for name in (name for name in ratios if name.split()[-1] == family):
            wanted.append(at_most(most, name, ratios[name]))
    if row.best and ratios:
        # Whoever there is no ratio to may be the best.
        name = max(ratios, key=lambda name: ratios[name] or math.inf)
        wanted.append(at_most(row.best, f"{name} (the best peer)", ratios[name]))
    if row.most:
        wanted.append((f"≤ {row.most:,}", own <= row.most))
    if row.least:
        wanted.append((f"≥ {row.least}", own >= row.least))
    return wanted


def at_most(most, name, factor):
    text = f"≤ {most:.2f} × {name}"
    return (text, factor <= most) if factor else (f"{text}, not comparable", False)
