# SPDX-License-Identifier: Apache-2.0
"""The options of tools/peers.py. The options are parsed twice: by peers.py, and by main.py, which peers.py starts."""

import argparse
import os
from pathlib import Path

import columns
import workloads

ROOT = Path(__file__).resolve().parents[2]
ROUNDS, QUICK_ROUNDS = 7, 3


def names(text):
    return [name for name in text.split(",") if name]


def peer_names(text):
    for name in names(text):
        if name not in columns.NAMES:
            raise argparse.ArgumentTypeError(f"no {name}; there are {', '.join(columns.NAMES)}")
    return names(text)


def workload_names(text):
    try:
        workloads.find(names(text))
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None
    return names(text)


def positive(text):
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"is {text}: must be a positive number")
    return int(text)


def parser(description):
    options = argparse.ArgumentParser(prog="peers.py", description=description)
    add = options.add_argument
    add("build", nargs="?", default=ROOT / "build", help="folder of attnkit's build; build/ by default")
    add("--no-venv", action="store_true", help="run in this Python, with its packages")
    add("--only", metavar="NAMES", type=peer_names, default=columns.NAMES,
        help="install and measure only these libraries, out of " + ",".join(columns.NAMES))
    add("--workloads", metavar="NAMES", type=workload_names,
        help="such as W1,W3_2048. W3 stands for all names that begin with W3_. All workloads by default")
    add("--quick", action="store_true",
        help=f"{QUICK_ROUNDS} rounds, without {workloads.SLOW}")
    add("--rounds", metavar="N", type=positive, help=f"{ROUNDS} by default")
    add("--threads", metavar="N", type=positive, default=1, help="threads of each call; 1 by default")
    add("--cold", metavar="MIB", type=positive,
        help="memory for copies of K and V (in decode and with few query rows) and of matrices, so that no call finds "
        "K, V or a matrix in a cache; by default 4 times the last-level cache, and at least 128 MiB")
    add("--processor-time", action="store_true",
        help="measure processor time, for a machine that other programs use meanwhile; only with one thread")
    add("--markdown", metavar="FILE", help="the table as Markdown; BUILD/peers/peers.md by default")
    add("--json", metavar="FILE", help="all figures; BUILD/peers/peers.json by default")
    add("--plot", metavar="PREFIX", help="prefix of the .png and the .svg file; BUILD/peers/peers by default")
    add("--no-plot", action="store_true", help="draw no plot; matplotlib is then not needed")
    return options


def find_library(build):
    path = build / "dispatch" / "libattnkit.so"
    if not path.exists():
        raise SystemExit(f"peers.py: no {path}: build attnkit (meson setup {build} && ninja -C {build}), "
                         "name another build folder, or leave out attnkit by --only")
    return str(path.resolve())


def complete(options):
    """Sets the options that follow from other options."""
    options.build = Path(options.build)
    options.library = find_library(options.build) if "attnkit" in options.only else None
    options.venv = options.build / "peers-venv"
    place = options.build / "peers"
    options.markdown = Path(options.markdown or place / "peers.md")
    options.json = Path(options.json or place / "peers.json")
    options.plot = Path(options.plot or place / "peers")
    options.rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    chosen = workloads.find(options.workloads) if options.workloads else [
        w for w in workloads.WORKLOADS if not (options.quick and w.name == workloads.SLOW)]
    options.workloads = chosen
    if options.processor_time and options.threads > 1:
        raise SystemExit("peers.py: --processor-time needs --threads 1")
    if options.threads > len(os.sched_getaffinity(0)):
        raise SystemExit(f"peers.py: --threads {options.threads}: there are only "
                         f"{len(os.sched_getaffinity(0))} processors")
    return options
