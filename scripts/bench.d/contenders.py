"""How each contender is configured: the same listeners, one of which routes by SNI, and one backend.

A contender is a function from a `Setup` to a command and its environment.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path

import peers

NAMES = [f"shop-{number}.example.com" for number in range(1000)]
# More than any figure needs at a time, and no more than usual limits of descriptors allow.
CONNECTIONS = 9000


@dataclass
class Setup:
    program: str
    directory: Path
    workers: int
    plain: int
    # None of those that cannot route by SNI.
    sni: int | None
    # None of those that do not balance UDP.
    udp: int | None
    backend: int
    # Host names by the pool that they are routed to. All pools have the one backend; the first one
    # serves what is not routed.
    pools: dict
    # Whether each connection becomes a line on the standard output.
    access_log: bool

    @property
    def first_pool(self):
        return next(iter(self.pools))

    def write(self, name, text):
        path = self.directory / name
        path.write_text(text)
        return str(path)


def pointsman(setup):
    routes = [{"sni": names, "pool": pool} for pool, names in setup.pools.items()]
    pool = {"balance": "round_robin", "backends": [f"127.0.0.1:{setup.backend}"]}
    udp = {"bind": f"127.0.0.1:{setup.udp}", "protocol": "udp", "pool": setup.first_pool}
    config = {
        "workers": setup.workers,
        # Flows go on until they are idle: nobody waits for that.
        "shutdown": {"grace": "0s"},
        "listeners": {
            "plain": {"bind": f"127.0.0.1:{setup.plain}", "pool": setup.first_pool},
            "sni": {"bind": f"127.0.0.1:{setup.sni}", "routes": routes},
            "udp": udp,
        },
        "pools": dict.fromkeys(setup.pools, pool),
        "access_log": {"path": "stdout"} if setup.access_log else "off",
    }
    return [setup.program, "run", "-c", setup.write("pointsman.yaml", json.dumps(config))], {}


def haproxy(setup):
    routes = [f"{name} {pool}\n" for pool, names in setup.pools.items() for name in names]
    server = f"server backend 127.0.0.1:{setup.backend}"
    backends = "\n".join(f"backend {pool}\n  {server}" for pool in setup.pools)
    log = "log stdout format raw daemon\n  option tcplog" if setup.access_log else "no log"
    config = setup.write("haproxy.cfg", f"""
global
  nbthread {setup.workers}
  maxconn {CONNECTIONS}
  # Of descriptors it wants to have enough for all, which with its own number of pipes are too many.
  maxpipes 256
defaults
  mode tcp
  timeout connect 1s
  timeout client 10m
  timeout server 10m
  option splice-auto
  {log}
listen plain
  bind 127.0.0.1:{setup.plain}
  {server} check
frontend sni
  bind 127.0.0.1:{setup.sni}
  tcp-request inspect-delay 3s
  tcp-request content accept if {{ req.ssl_hello_type 1 }}
  use_backend %[req.ssl_sni,lower,map({setup.write("names.map", "".join(routes))})]
{backends}
""")
    return [setup.program, "-f", config], {}


def nginx(setup, load_module=""):
    routes = "\n".join(f"{name} {pool};" for pool, names in setup.pools.items() for name in names)
    server = f"server 127.0.0.1:{setup.backend};"
    upstreams = "\n".join(f"upstream {pool} {{ {server} }}" for pool in setup.pools)
    # One accept queue a worker; with a single worker there is one anyway.
    reuse = " reuseport" if setup.workers > 1 else ""
    listen = f"backlog={CONNECTIONS}{reuse}"
    log = "/dev/stdout bench" if setup.access_log else "off"
    user = "user root;" if os.geteuid() == 0 else ""
    config = setup.write("nginx.conf", f"""
{load_module} {user}
daemon off;
worker_processes {setup.workers};
pid {setup.directory}/nginx.pid;
error_log stderr;
events {{ worker_connections {2 * CONNECTIONS}; }}
stream {{
  map_hash_bucket_size 128;
  map_hash_max_size {4 * sum(map(len, setup.pools.values()))};
  {upstreams}
  map $ssl_preread_server_name $pool {{
    {routes}
  }}
  log_format bench '$remote_addr [$time_iso8601] $protocol $status $bytes_sent $bytes_received '
    '$session_time "$upstream_addr" $upstream_connect_time $upstream_first_byte_time';
  access_log {log};
  proxy_half_close on;
  server {{ listen 127.0.0.1:{setup.plain} {listen}; proxy_pass {setup.first_pool}; }}
  server {{ listen 127.0.0.1:{setup.sni} {listen}; ssl_preread on; proxy_pass $pool; }}
  server {{ listen 127.0.0.1:{setup.udp} udp{reuse}; proxy_pass {setup.first_pool}; }}
}}
""")
    return [setup.program, "-e", "stderr", "-p", str(setup.directory), "-c", config], {}


def debian_nginx(setup):
    return nginx(setup, f"load_module {peers.STREAM_MODULE};")


def envoy(setup):
    types = "type.googleapis.com/envoy.extensions.filters"
    proxy = {"@type": f"{types}.network.tcp_proxy.v3.TcpProxy", "stat_prefix": "bench"}
    if setup.access_log:
        log = "type.googleapis.com/envoy.extensions.access_loggers.stream.v3.StdoutAccessLog"
        proxy["access_log"] = [{"name": "envoy.access_loggers.stdout", "typed_config": {"@type": log}}]
    to = lambda pool: [{"name": "envoy.filters.network.tcp_proxy", "typed_config": {**proxy, "cluster": pool}}]
    routes = [
        {"filter_chain_match": {"server_names": names}, "filters": to(pool)}
        for pool, names in setup.pools.items()
    ]
    inspector = {"@type": f"{types}.listener.tls_inspector.v3.TlsInspector"}
    inspect = [{"name": "envoy.filters.listener.tls_inspector", "typed_config": inspector}]
    address = lambda port: {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    limits = {"max_connections": CONNECTIONS, "max_pending_requests": CONNECTIONS}
    endpoints = [{"lb_endpoints": [{"endpoint": {"address": address(setup.backend)}}]}]
    datagrams = f"{types}.udp.udp_proxy.v3"
    everywhere = {"on_no_match": {"action": {"name": "route", "typed_config": {
        "@type": f"{datagrams}.Route", "cluster": setup.first_pool,
    }}}}
    relay = [{"name": "envoy.filters.udp_listener.udp_proxy", "typed_config": {
        "@type": f"{datagrams}.UdpProxyConfig", "stat_prefix": "bench", "matcher": everywhere,
    }}]
    udp = {"socket_address": {"address": "127.0.0.1", "port_value": setup.udp, "protocol": "UDP"}}
    config = {"static_resources": {
        "listeners": [
            {"name": "udp", "address": udp, "listener_filters": relay},
            {"name": "plain", "address": address(setup.plain), "filter_chains": [
                {"filters": to(setup.first_pool)},
            ]},
            {"name": "sni", "address": address(setup.sni), "listener_filters": inspect, "filter_chains": routes},
        ],
        "clusters": [{
            "name": pool,
            "type": "STATIC",
            "circuit_breakers": {"thresholds": [limits]},
            "load_assignment": {"cluster_name": pool, "endpoints": endpoints},
        } for pool in setup.pools],
    }}
    path = setup.write("envoy.json", json.dumps(config))
    flags = ["--concurrency", str(setup.workers), "--disable-hot-restart", "--log-level", "error"]
    return [setup.program, "-c", path, *flags], {}


def traefik(setup):
    routers = {"plain": {"rule": "HostSNI(`*`)", "service": setup.first_pool, "entryPoints": ["plain"]}}
    for pool, names in setup.pools.items():
        for name in names:
            routers[name.replace(".", "-")] = {
                "rule": f"HostSNI(`{name}`)",
                "service": pool,
                "entryPoints": ["sni"],
                "tls": {"passthrough": True},
            }
    servers = [{"address": f"127.0.0.1:{setup.backend}"}]
    services = dict.fromkeys(setup.pools, {"loadBalancer": {"servers": servers}})
    routed = {"udp": {"service": setup.first_pool, "entryPoints": ["udp"]}}
    udp = {"routers": routed, "services": services}
    rules = {"tcp": {"routers": routers, "services": services}, "udp": udp}
    return [
        setup.program,
        f"--entryPoints.plain.address=127.0.0.1:{setup.plain}",
        f"--entryPoints.sni.address=127.0.0.1:{setup.sni}",
        f"--entryPoints.udp.address=127.0.0.1:{setup.udp}/udp",
        # JSON is YAML, which is what the file's name has to promise.
        f"--providers.file.filename={setup.write('rules.yaml', json.dumps(rules))}",
        "--global.checkNewVersion=false",
        "--global.sendAnonymousUsage=false",
        "--log.level=ERROR",
    ], {"GOMAXPROCS": str(setup.workers)}


def sozu(setup):
    config = setup.write("sozu.toml", f"""
command_socket = "{setup.directory}/sozu.sock"
worker_count = {setup.workers}
max_connections = {CONNECTIONS}
max_buffers = {2 * CONNECTIONS}
log_level = "error"
log_target = "stdout"
activate_listeners = true
[[listeners]]
protocol = "tcp"
address = "127.0.0.1:{setup.plain}"
[clusters.bench]
protocol = "tcp"
frontends = [{{ address = "127.0.0.1:{setup.plain}" }}]
backends = [{{ address = "127.0.0.1:{setup.backend}" }}]
""")
    return [setup.program, "start", "-c", config], {}


# In the order of the table.
CONTENDERS = {
    "pointsman": pointsman,
    "HAProxy": haproxy,
    "nginx": debian_nginx,
    "newest nginx": nginx,
    "Envoy": envoy,
    "Traefik": traefik,
    "sōzu": sozu,
}
WITHOUT_SNI = {"sōzu"}
WITHOUT_UDP = {"HAProxy", "sōzu"}
# Traefik has no workers that keep their connections.
WITHOUT_WORKERS = {"Traefik"}
# Traefik logs requests of HTTP only.
WITHOUT_LOG = {"Traefik", "sōzu"}
