#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how often `attnkit compare` finds a real slowdown, and how often it reports a slowdown that is not there.

    tools/detection.py [BUILD] [--runs 20] [--percents 0,1,2,3,5] [--load none|same|other] ...

In BUILD/detection, builds libraries whose prefill is slowed by the given percentages (-Dslowdown). Compares each
library, repeatedly and in random order, with the library that was built with -Dslowdown=0. Points of prefill are
slower, points of decode, linear maps and appends are not. Therefore a red point of decode, linear maps or appends is a
false alarm, and so is any red point at 0 percent. The help of --filter names points that are slowed in part. The median
time of a run is 6 s in bench/results/detection.md. After each run, all results so far are written to PREFIX.json, and a
table to PREFIX.md (--output). With --from, the results come from a stored JSON file.

The exit code is 0 if two bounds hold. The share of slowdowns that were found must be large enough (FOUND_FLOORS), and
the share of runs with a false alarm small enough (FALSE_JOBS_CEILING). The exit code is 1 if a bound does not hold, 2
if the command was not understood, and 3 if there is nothing to judge or something went wrong."""

import argparse
import datetime
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))

from files import whole  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
TIME_LIMIT = 600  # seconds that a run may take
VERDICTS = {0: "green", 1: "red", 2: "inconclusive"}
TIMED = ("same", "slower", "faster", "unclear")

# The points that are compared by default. `attnkit compare` has points of these workloads on the best instruction set.
# On AVX2, it also has points of the workloads in f32. If the best set is better than AVX2, POINTS matches ten points.
POINTS = ("^(prefill/f32/[^/]+/(B1_H2_1_L192_D128_causal|B1_H6_L128_D64_causal)"
          "|prefill/(f16|q8_0)/[^/]+/B1_H2_1_L192_D128_causal"
          "|decode/f32/[^/]+/B1_H8_2_L1x1024_D128/warm|linear/f32/[^/]+/R64_I384_O384/warm)$")
FOUND_FLOORS = {2: 0.70, 3: 0.95}  # slowdown in percent -> the least share of slowed points that must be red
FALSE_JOBS_CEILING = 0.01          # the largest share of runs with a false alarm


def fail(message):
    print(f"detection.py: {message}", file=sys.stderr)
    sys.exit(3)


def read_options():
    options = argparse.ArgumentParser(prog="detection.py", description=__doc__.splitlines()[0])
    add = options.add_argument
    add("build", nargs="?", type=Path, default=ROOT / "build", help="folder of attnkit's build; build/ by default")
    add("--runs", metavar="N", type=int, default=20, help="comparisons of each percentage; 20 by default")
    add("--percents", metavar="LIST", type=read_percents, default=[0, 1, 2, 3, 5],
        help="0,1,2,3,5 by default; a percentage that is named twice gets twice the runs")
    add("--filter", metavar="REGEX", default=POINTS,
        help="the points to compare; by default ten, or fewer without AVX-512. Layers, prefill with a few "
             "query rows, and points of the family 'few' are slowed in part or not at all: choose them only with "
             "--percents 0")
    add("--quick", action="store_true", help="run attnkit compare --quick, which measures fewer pairs")
    add("--load", choices=("none", "same", "other"), default="none",
        help="keep a processor busy: the processor of the measurements, or another processor")
    add("--seed", metavar="N", type=int, default=1, help="seed of the order of the runs; 1 by default")
    add("--output", metavar="PREFIX", type=Path,
        help="prefix of the .json and the .md file; BUILD/detection/results by default")
    add("--from", metavar="FILE", type=Path, dest="measured",
        help="measure nothing, make the table of this JSON file")
    return options.parse_args()


def read_percents(text):
    percents = [int(word) for word in text.split(",")]
    if not all(0 <= percent <= 100 for percent in percents):
        raise argparse.ArgumentTypeError(f"{text}: must be between 0 and 100")
    return percents


# ----------------------------------------------------------------------------- the libraries


def run(command):
    """Runs a command to its end. Shows the output of a command that fails."""
    done = subprocess.run([str(word) for word in command], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    if done.returncode:
        fail(f"{' '.join(map(str, command))}\n{done.stdout[-4000:]}")


def build_libraries(folder, percents):
    """Builds libraries that are slowed by the given percentages, each with its worker in the same folder. One build
    folder makes all libraries, because little differs between the libraries."""
    meson = shutil.which("meson") or ROOT / ".venv" / "bin" / "meson"
    build, libraries = folder / "build", {}
    if not (build / "build.ninja").exists():
        run([meson, "setup", build, ROOT, "--buildtype=release", "-Dtests=false", "-Dtools=false",
             "-Dbench=disabled", "-Dslowdown=0"])
    for percent in percents:
        print(f"building the library that is {percent} % slower", file=sys.stderr, flush=True)
        run([meson, "configure", build, f"-Dslowdown={percent}"])
        run([meson, "compile", "-C", build])
        run([meson, "compile", "-C", build, "worker"])
        libraries[percent] = folder / f"slowdown{percent}" / "libattnkit.so"
        libraries[percent].parent.mkdir(exist_ok=True)
        shutil.copyfile(build / "dispatch" / "libattnkit.so", libraries[percent])
        shutil.copy(build / "bench" / "worker" / "attnkit-worker.so", libraries[percent].parent)
    return libraries


# ------------------------------------------------------------------------------ measurements


class Load:
    """A process that keeps a processor busy, or no process."""

    def __init__(self, kind, core):
        others = sorted(os.sched_getaffinity(0) - {core})
        if kind == "other" and not others:
            fail("--load other: there is no other processor")
        self.core = {"none": None, "same": core, "other": others[0] if others else None}[kind]

    def __enter__(self):
        self.process = None
        if self.core is not None:
            pinned = f"import os; os.sched_setaffinity(0, [{self.core}])\nwhile True: pass"
            self.process = subprocess.Popen([sys.executable, "-c", pinned])

    def __exit__(self, *_):
        if self.process:
            self.process.kill()
            self.process.wait()


def run_to_end(words):
    """Returns the exit code and the standard error of a command. After TIME_LIMIT, terminates the command and waits
    until the command has ended. After an interrupt, also terminates the command, but does not wait for its end."""
    try:
        with subprocess.Popen(words, text=True, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE) as process:
            try:
                _, said = process.communicate(timeout=TIME_LIMIT)
            except BaseException:
                process.terminate()
                raise
            return process.returncode, said
    except OSError as problem:
        fail(f"cannot start {words[0]}: {problem.strerror}")
    except subprocess.TimeoutExpired:
        fail(f"{' '.join(words)} takes longer than {TIME_LIMIT} s")


def compare(command, seed):
    """Runs the comparison once, and returns its JSON."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "run.json"
        words = [*map(str, command), "--seed", str(seed), "--json", str(file)]
        code, said = run_to_end(words)
        if code not in VERDICTS or not file.exists():
            fail(f"{' '.join(words)}: exit code {code}\n{said.strip()}")
        result = json.loads(file.read_text())
    if result["verdict"] != VERDICTS[code]:
        fail(f"{words[0]} says {result['verdict']}, but its exit code is {code}")
    return result


def summary(result, percent, names):
    """Returns the part of a run's results that is stored. Pairs, ratios and verdicts are in the order of `names`."""
    points = {point["name"]: point for point in result["points"]}
    if list(points) != names:
        fail(f"the points of a run are {', '.join(points)}: they were {', '.join(names)}")
    slowed = sum(is_slowed(name, 1) for name in names)
    if slowed == 0 or slowed == len(names):
        fail(f"{'all points are' if slowed else 'no point is'} of prefill: "
             "some points must be of prefill, which is slowed, and some of other calls")
    for point in points.values():
        if point["verdict"] not in TIMED:
            fail(f"{point['name']}: {point['verdict']}: {point.get('note', '')}")
    aa = result["context"]["aa"]
    return {"percent": percent, "verdict": result["verdict"],
            "seconds": round(result["context"]["seconds"], 1),
            "load_average": round(os.getloadavg()[0], 1),
            "aa": [round(aa[key], 5) for key in ("ratio", "low", "high")],
            "pairs": [point["pairs"] for point in points.values()],
            "ratios": [round(point["ratio"], 5) for point in points.values()],
            "verdicts": ["red" if point["red"] else point["verdict"] for point in points.values()]}


def order_of_runs(percents, runs, seed):
    """Returns the percentage of each run, in the order of the runs. Each round has all percentages, so that changes
    of the machine affect all percentages alike."""
    lots = random.Random(seed)
    return [percent for _ in range(runs) for percent in lots.sample(percents, len(percents))]


def progress(results, total):
    last = results["runs"][-1]
    found, of = count([last], results["points"], slowed=True)
    false, _ = count([last], results["points"], slowed=False)
    print(f"[{len(results['runs'])}/{total}] {last['percent']} % slower: {last['verdict']}, "
          f"{found} of {of} found, {false} false, {last['seconds']:.0f} s, "
          f"load {last['load_average']}", file=sys.stderr, flush=True)


def measure(options, prefix):
    folder = options.build.resolve() / "detection"
    slowed = build_libraries(folder, sorted({0, *options.percents}))
    core = max(os.sched_getaffinity(0))
    command = [options.build.resolve() / "tools" / "attnkit", "compare", slowed[0]]
    more = ["--filter", options.filter, "--core", core, *(["--quick"] if options.quick else [])]
    order = order_of_runs(options.percents, options.runs, options.seed)
    results = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
               "load": options.load, "quick": options.quick, "processors": os.cpu_count(),
               "runs": []}
    with Load(options.load, core):
        for seed, percent in enumerate(order, 1):
            result = compare([*command, slowed[percent], *more], seed)
            results.setdefault("cpu", result["context"]["cpu"])
            results.setdefault("points", [point["name"] for point in result["points"]])
            results["runs"].append(summary(result, percent, results["points"]))
            progress(results, len(order))
            write(results, prefix)
    return results


# ------------------------------------------------------------------------------ the statistics


def is_slowed(name, percent):
    return percent > 0 and name.startswith("prefill/")


def interval(some, of):
    """Returns the ends of Wilson's 95 % interval of the share some / of."""
    if of == 0:
        return 0.0, 1.0
    z2, share = 1.96 ** 2, some / of
    centre = (share + z2 / (2 * of)) / (1 + z2 / of)
    half = math.sqrt(share * (1 - share) * z2 / of + z2 * z2 / (4 * of * of)) / (1 + z2 / of)
    return max(0.0, centre - half), min(1.0, centre + half)


def band(values):
    """Returns the median, and the 2 % and 98 % quantiles by the nearest rank."""
    ordered = sorted(values)
    at = [ordered[round(q * (len(ordered) - 1))] for q in (0.02, 0.98)]
    return median(ordered), at[0], at[1]


def count(runs, names, slowed, words=("red",)):
    """Returns (number of verdicts that are one of the words, number of all verdicts). If `slowed` is true, counts only
    points that are slowed. Otherwise counts only the other points."""
    verdicts = [verdict for run in runs for name, verdict in zip(names, run["verdicts"])
                if is_slowed(name, run["percent"]) == slowed]
    return sum(verdict in words for verdict in verdicts), len(verdicts)


def has_false_alarm(run, names):
    return count([run], names, slowed=False)[0] > 0


def is_conclusive(run):
    return run["verdict"] != "inconclusive"


def rates(results, percent):
    """Returns a dict with the numbers of a row of the table. The verdicts are counted over the conclusive runs, except
    for "found_of_inconclusive". "ratio" and "seconds" are taken over all runs. "ratio" is taken over the points that
    were slowed or, at 0 percent, over all points."""
    names = results["points"]
    runs = [run for run in results["runs"] if run["percent"] == percent]
    conclusive = [run for run in runs if is_conclusive(run)]
    ratios = [ratio for run in runs for name, ratio in zip(names, run["ratios"])
              if is_slowed(name, percent) or percent == 0]
    return {"percent": percent, "runs": len(runs), "inconclusive": len(runs) - len(conclusive),
            "red_jobs": sum(run["verdict"] == "red" for run in conclusive),
            "found": count(conclusive, names, slowed=True),
            "found_of_inconclusive": count([run for run in runs if not is_conclusive(run)],
                                               names, slowed=True),
            "false": count(conclusive, names, slowed=False),
            "false_jobs": (sum(has_false_alarm(run, names) for run in conclusive),
                           len(conclusive)),
            "ratio": band(ratios), "seconds": median(run["seconds"] for run in runs)}


def floors(rows):
    """Returns, for each floor of a measured percentage and for the ceiling, (what was counted, its share, the bound of
    the share, whether the bound holds)."""
    held = []
    for row in rows:
        floor = FOUND_FLOORS.get(row["percent"])
        if floor is not None:
            found, of = row["found"]
            share = found / of if of else 0.0
            held.append((f"{row['percent']} % found", share, f">= {100 * floor:.0f} %",
                         share >= floor))
    jobs, of = (sum(row["false_jobs"][i] for row in rows) for i in (0, 1))
    share = jobs / of if of else 1.0
    held.append(("jobs red without cause", share, f"<= {100 * FALSE_JOBS_CEILING:.0f} %",
                 share <= FALSE_JOBS_CEILING))
    return held


# -------------------------------------------------------------------------------- the table


def share_text(some, of):
    if of == 0:
        return ""
    low, high = interval(some, of)
    return f"{100 * some / of:.1f} % of {of} [{100 * low:.1f}, {100 * high:.1f}]"


def row_text(row):
    ratio, low, high = row["ratio"]
    return [f"{row['percent']} %", f"{row['runs']}", f"{row['inconclusive']}",
            share_text(*row["found"]), f"{ratio:.4f} [{low:.4f}, {high:.4f}]",
            share_text(*row["false"]), share_text(*row["false_jobs"]), f"{row['red_jobs']}"]


def pooled_text(rows):
    """Returns the last row of the table: the sums over all percentages, and the shares of false alarms."""
    false, jobs = ([sum(row[key][i] for row in rows) for i in (0, 1)]
                   for key in ("false", "false_jobs"))
    return ["all", str(sum(row["runs"] for row in rows)),
            str(sum(row["inconclusive"] for row in rows)), "", "", share_text(*false),
            share_text(*jobs), str(sum(row["red_jobs"] for row in rows))]


HEADINGS = ("slower by", "runs", "inconclusive", "points found [95 %]", "median ratio [2-98 %]",
            "false alarms, points [95 %]", "false alarms, jobs [95 %]", "red jobs")


def notes(results, rows):
    runs = results["runs"]
    aa, low, high = band([run["aa"][0] for run in runs])
    load, least, most = band([run["load_average"] for run in runs])
    seconds = band([run["seconds"] for run in runs])
    verdicts = sum(len(run["verdicts"]) for run in runs)
    found, of = (sum(row["found_of_inconclusive"][i] for row in rows) for i in (0, 1))
    how = {"none": "no load by the tool", "same": "a process that keeps the same processor busy",
           "other": "a process that keeps another processor busy"}[results["load"]]
    yield (f"{results['cpu']}, {results['processors']} processors, {results['date'][:10]}: {verdicts} "
           f"verdicts on {len(results['points'])} points{', --quick' if results['quick'] else ''}; {how}, "
           f"load average {load:.1f} [{least:.1f}, {most:.1f}]. A run takes {seconds[0]:.0f} s "
           f"[{seconds[1]:.0f}, {seconds[2]:.0f}].")
    yield f"BASE against itself: {aa:.4f} [{low:.4f}, {high:.4f}] over the runs."
    if of:
        yield f"Found in inconclusive runs, which do not count: {share_text(found, of)}."
    slower, of = count(runs, results["points"], slowed=False, words=("slower", "red"))
    yield ("Points that were not slowed, but were slower when first measured, whether or not the second process "
           f"confirmed the slowdown: {share_text(slower, of)}.")
    for what, share, bound, holds in floors(rows):
        yield f"{what}: {100 * share:.1f} %, must be {bound}: {'holds' if holds else 'MISSED'}."


def table(results):
    rows = [rates(results, percent) for percent in sorted({run["percent"] for run in results["runs"]})]
    lines = [HEADINGS, ["---:"] * len(HEADINGS), *map(row_text, rows), pooled_text(rows)]
    text = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return text + "".join(f"\n{note}\n" for note in notes(results, rows)), rows


def as_json(results):
    """Returns the JSON of the results, with one line for each run."""
    head = json.dumps({key: value for key, value in results.items() if key != "runs"}, indent=1)
    runs = ",\n  ".join(json.dumps(run) for run in results["runs"])
    return f"{head[:-2]},\n \"runs\": [\n  {runs}\n ]\n}}\n"


def write(results, prefix):
    for kind, text in (("json", as_json(results)), ("md", table(results)[0])):
        with whole(f"{prefix}.{kind}") as part:
            part.write_text(text, encoding="utf-8")


def main():
    options = read_options()
    prefix = options.output or options.build / "detection" / "results"
    if options.measured:
        results = json.loads(options.measured.read_text())
        write(results, prefix)
    else:
        results = measure(options, prefix)
    if not any(is_conclusive(run) for run in results["runs"]):
        fail("all runs are inconclusive")
    text, rows = table(results)
    print(text, end="")
    return 0 if all(holds for *_, holds in floors(rows)) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
