#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plots the time per query row against the number of query rows of a call, from decode to a part of a prompt.

    tools/plot_rows.py [BUILD] [--type f16] [--isa avx2] ...

By default, `attnkit bench` measures each number of query rows from 1 to 128 over 4096 keys three times, which takes
five minutes. The plot has the medians. The order is random, so that a machine that becomes slower does not look like a
slope. Writes a plot as PNG and SVG, and the numbers as JSON. With --from, plots a JSON file that an earlier run wrote,
and measures nothing. If this Python has no matplotlib, the Python of tools/peers.py's virtual environment takes over.
The environment is made if necessary. Measuring needs the benches, which must have been built."""

import argparse
import datetime
import importlib.util
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))

import environment  # noqa: E402
from files import whole  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
TIME_LIMIT = 300
ROUNDS = 3
HEADS, DIM = "32_8", 128


def read_options():
    options = argparse.ArgumentParser(prog="plot_rows.py", description=__doc__.splitlines()[0])
    add = options.add_argument
    add("build", nargs="?", type=Path, default=ROOT / "build", help="folder of attnkit's build; build/ by default")
    add("--type", default="f16", help="type of K and V; f16 by default")
    add("--isa", metavar="NAME", help="the instruction set; by default, the best")
    add("--threads", metavar="N", default="1", help="threads of each call; 1 by default")
    add("--keys", metavar="N", type=int, default=4096, help="keys of each call; 4096 by default")
    add("--rows", metavar="N", type=int, default=128, help="measure calls of 1 to N query rows; 128 by default")
    add("--output", metavar="PREFIX", type=Path,
        help="prefix of the .png, .svg and .json file; BUILD/rows_TYPE by default")
    add("--from", metavar="FILE", type=Path, dest="measured",
        help="measure nothing, draw this JSON file")
    add("--no-venv", action="store_true", help="stop if this Python has no matplotlib")
    return options.parse_args()


# ------------------------------------------------------------------------------ measurements


def shape(rows, keys):
    return f"B1_H{HEADS}_L{rows}x{keys}_D{DIM}_causal"


def bench(options, rows):
    """Runs `attnkit bench` for `rows` query rows. Returns the bench's row and the context of the run."""
    command = [str(options.build / "tools" / "attnkit"), "bench", "--quick", "--type", options.type,
               "--threads", options.threads, "--shape", shape(rows, options.keys)]
    command += ["--isa", options.isa] if options.isa else []
    with tempfile.NamedTemporaryFile() as file:
        try:
            subprocess.run([*command, "--json", file.name], check=True, text=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=TIME_LIMIT)
        except OSError as problem:
            sys.exit(f"plot_rows.py: cannot start {command[0]}: {problem.strerror}")
        except subprocess.SubprocessError as problem:
            sys.exit(f"plot_rows.py: {' '.join(command)}: {(problem.stderr or str(problem)).strip()}")
        results = json.loads(Path(file.name).read_text())
    return results["benchmarks"][0], results["context"]


def point(rows, row):
    """Returns one point of the plot. Times are in seconds of wall clock time; cpu_seconds are processor time."""
    seconds = 1e-9 * row["real_time"]
    work = {key: 1e9 * row[rate] * seconds for key, rate in (("flops", "GFLOPS"), ("bytes", "GBps"))
            if rate in row}
    roofs = {key: 1e9 * row[key] for key in ("roof_GFLOPS", "roof_GBps") if key in row}
    return {"rows": rows, "name": row["name"], "seconds": seconds, "seconds_of_a_row": seconds / rows,
            "cpu_seconds": 1e-9 * row["cpu_time"], "roof_pct": row["roof_pct"], **work, **roofs}


def measure(options):
    lots, numbers = random.Random(1), range(1, options.rows + 1)
    order = [rows for _ in range(ROUNDS) for rows in lots.sample(numbers, options.rows)]
    measured, context = {rows: [] for rows in numbers}, {}
    for done, rows in enumerate(order, 1):
        row, context = bench(options, rows)
        measured[rows].append(point(rows, row))
        print(f"[{done}/{len(order)}] {row['name']}  "
              f"{measured[rows][-1]['seconds_of_a_row'] * 1e6:.1f} µs a row", file=sys.stderr, flush=True)
    points = [sorted(of_rows, key=lambda p: p["seconds"])[ROUNDS // 2] for of_rows in measured.values()]
    return {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "cpu": context["cpu"], "attnkit": context["attnkit"], "type": options.type,
            "isa": points[0]["name"].split("/")[2], "threads": int(options.threads),
            "keys": options.keys, "heads": HEADS, "dim": DIM,
            "points": points}


# ---------------------------------------------------------------------------------- the plot


def bounds(results):
    """Returns, for each point, the shortest time in seconds that the roofs allow for a row. The shortest time of a call
    is the larger of two times: for its multiply-adds, and for reading K and V once. For a call of one row, only the
    time for reading counts. The time of a call is divided equally among its rows."""
    few = results["points"][1:]
    flops = median(p["roof_GFLOPS"] for p in few) if few else None
    read = results["points"][0]
    return [max(p["flops"] / flops if "flops" in p else 0.0, read["bytes"] / read["roof_GBps"])
            / p["rows"] for p in results["points"]]


def draw(results, prefix):
    import plot
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
    rows = [p["rows"] for p in results["points"]]
    with plot.plt.rc_context(plot.STYLE):
        figure, axes = plot.plt.subplots(figsize=(9, 5), layout="constrained")
        axes.plot(rows, [1e6 * p["seconds_of_a_row"] for p in results["points"]], marker="o",
                  markersize=3, color=plot.OURS[0][0], label=f"attnkit {results['isa']}")
        axes.plot(rows, [1e6 * bound for bound in bounds(results)], color=plot.INK, linewidth=1.2,
                  label="roof: reading K and V once, or multiply-adds")
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(FixedLocator([2 ** i for i in range(rows[-1].bit_length())]))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_ylim(bottom=0)
        axes.grid(color=plot.FAINT, linewidth=0.8)
        axes.set_xlabel("query rows of a call")
        axes.set_ylabel("µs for each query row")
        axes.set_title(title(results))
        axes.legend(frameon=False)
        paths = [plot.save(figure, f"{prefix}.{kind}", kind) for kind in ("png", "svg")]
        plot.plt.close(figure)
    return paths


def title(results):
    heads, threads = results["heads"].replace("_", "/"), results["threads"]
    return (f"Time of a query row: {results['keys']} keys in {results['type']}, {heads} heads, "
            f"D {results['dim']}\n{results['cpu']}, {threads} thread{'s' * (threads > 1)}, "
            f"{results['date'][:10]}")


# ------------------------------------------------------------------------------- the program


def take_matplotlib(options):
    """Continues in a Python that has matplotlib. With --no-venv, ends the program if this Python has no matplotlib."""
    if options.no_venv and not importlib.util.find_spec("matplotlib"):
        sys.exit(f"plot_rows.py: {sys.executable} has no matplotlib: leave out --no-venv, or take a "
                 "Python that has matplotlib (Debian: python3-matplotlib)")
    environment.take_matplotlib(options.build / "peers-venv")


def main():
    options = read_options()
    take_matplotlib(options)
    prefix = options.output or options.build / f"rows_{options.type}"
    if options.measured:
        results = json.loads(options.measured.read_text())
    else:
        results = measure(options)
        with whole(f"{prefix}.json") as part:
            part.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    for path in draw(results, prefix):
        print(f"wrote {path}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
