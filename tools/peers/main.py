# SPDX-License-Identifier: Apache-2.0
"""The program that tools/peers.py runs in the virtual environment. The program measures, prints the table, and writes
the files and the plot."""

import datetime
import json
import os
import platform
import signal
import sys

import numpy

import columns
import options as command_line
import report
from files import whole
from libraries import with_attnkit
from measure import Contest, say
from roof import Roofs
from tensors import cpu_name, last_level_cache


def vector_isas(library):
    try:
        isas = with_attnkit.isas(library)
    except OSError as problem:
        sys.exit(f"peers.py: cannot load attnkit: {problem}")
    return isas or sys.exit(f"peers.py: {library} has only the plain C kernels for this CPU, which "
                            "are not for speed; leave out attnkit by --only")


def choose_columns(only, library, workloads):
    isas = vector_isas(library) if library else []
    ours = [columns.attnkit_column(isa) for isa in isas]
    if isas and any(workload.narrow for workload in workloads):
        ours += [columns.attnkit_column(isas[0], mode) for mode in columns.MODES]
    return ours + [column for name, column in columns.PEERS.items() if name in only]


def pin(threads):
    """Pins this process and its children to the last processors, one for each thread of a call. The first processor
    handles the interrupts, so it is taken last. The benches of the roofs are children of this process."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-threads:])


def machine():
    return {"cpu": cpu_name(), "cpus": os.cpu_count(), "last_level_cache": last_level_cache(),
            "memory": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
            "system": f"{platform.system()} {platform.release()}",
            "python": platform.python_version(), "numpy_of_the_oracle": numpy.__version__}


def describe_columns(contest, library):
    """Returns a dict: title of the column -> dict with the version of its library, the reason why the library cannot be
    used, and the instruction set. Each of these may be None."""
    described = {}
    for column in contest.columns:
        version = contest.versions.get(column)
        if column.isa and version:
            version = f"{with_attnkit.library_version(library)}, {version}"
        described[column.title] = {"version": version, "cannot": contest.absent.get(column),
                                   "isa": column.isa}
    return described


def measure(options):
    library = options.library
    roofs = Roofs(options.build, options.threads)
    date = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    with Contest(choose_columns(options.only, library, options.workloads), options, library, roofs) as contest:
        entries = []
        for i, workload in enumerate(options.workloads):
            say(f"[{i + 1}/{len(options.workloads)}] {workload.name}  {workload.shape}")
            entries.append(contest.run(workload))
        return {"date": date, "machine": machine(), "threads": options.threads,
                "rounds": options.rounds, "processor_time": options.processor_time,
                "roofs_missing": roofs.missing,
                "columns": describe_columns(contest, library), "workloads": entries}


def write(path, text):
    with whole(path) as part:
        part.write_text(text, encoding="utf-8")
    say(f"wrote {path}")


def draw(results, prefix):
    """Draws the plot and returns True. If the plot cannot be drawn, prints a message and returns False."""
    try:
        import plot
    except ImportError as problem:
        say(f"peers.py: no plot: {problem}; install matplotlib, or give --no-plot")
        return False
    written = plot.draw(results, prefix)
    for path in written:
        say(f"wrote {path}")
    if not written:
        say("peers.py: no plot: there are no percents to draw")
    return bool(written)


def main():
    options = command_line.complete(command_line.parser(__doc__).parse_args())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    pin(options.threads)
    results = measure(options)
    print(report.text(results))
    write(options.json, json.dumps(results, indent=1) + "\n")
    write(options.markdown, report.markdown(results))
    return 0 if options.no_plot or draw(results, options.plot) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
