#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the rows of `attnkit bench` with the floors of bench/floors.

A floor is a percentage of a row's roof, on any machine or on machines of a CPU family.

    tools/floors.py [BUILD] [--quick]           measures the rows that have a floor and can run here
    tools/floors.py --results FILE ...          measures nothing
    tools/floors.py --raise --results FILE ...  writes higher floors, never lower floors
    tools/floors.py --base [REVISION]           checks that no floor is lower than at the revision

A row is measured 5 times (--quick: 3). Medians are over undisturbed measurements (bench/README.md, Noise). A row is
measured as often again if it is below its floor, or has fewer than 3 undisturbed measurements (--quick: 2). There are
at most two such further rounds (--quick: one).

The exit status is 0 if the floors of all measured rows hold, and 1 if a floor is broken. It is 2 if no floor is broken,
but some rows could not be judged. With --base, it is 0 if no floor is lower, else 1. With --raise, it is 0. It is 3 if
something else went wrong, such as an invalid file. It is 77 if --base without a revision finds no revision."""

import argparse
import dataclasses
import math
import re
import subprocess
import sys
import tempfile
from pathlib import Path

TOOLS = Path(__file__).resolve().parent
sys.path += [str(TOOLS / "peers"), str(TOOLS / "report")]

import cpus  # noqa: E402
import results  # noqa: E402
from base_revision import base_revision  # noqa: E402
from files import whole  # noqa: E402

ROOT = TOOLS.parent
REPEATS, QUICK_REPEATS = 5, 3
ROUNDS, QUICK_ROUNDS = 3, 2  # rounds of measuring; later rounds repeat rows below their floor and rows not judged
TIME_LIMIT = 3600  # seconds that `attnkit bench` may take
# --raise sets a floor to this share of the lowest measured value. The speed of reading memory varies more between runs
# and between machines than the speed of multiply-adds.
KEPT = {"GFLOPS": 0.96, "GBps": 0.90}
BROKEN, NOT_JUDGED, NO_SENSE, NOTHING_TO_SEE = 1, 2, 3, 77


@dataclasses.dataclass
class Floor:
    """A percentage of a roof for any machine, and percentages for some CPU families."""
    common: float
    families: dict = dataclasses.field(default_factory=dict)  # name -> percent, never below common

    def of(self, family):
        return self.families.get(family, self.common)

    def __str__(self):
        return " ".join([f"{self.common:.1f}", *(f"{name}={percent:.1f}"
                                                  for name, percent in self.families.items())])


@dataclasses.dataclass
class Machine:
    """The results of a machine."""
    family: str  # None if cpus.py does not know the family
    rows: dict   # name -> results.Row


class Options(argparse.ArgumentParser):
    def error(self, message):
        fail(message)


def fail(message):
    print(f"floors.py: {message}", file=sys.stderr)
    sys.exit(NO_SENSE)


def read_options():
    options = Options(prog="floors.py", description=__doc__.splitlines()[0])
    add = options.add_argument
    add("build", nargs="?", type=Path, default=ROOT / "build", help="folder of attnkit's build; build/ by default")
    add("--quick", action="store_true",
        help=f"make only {QUICK_REPEATS} short measurements of each row of attnkit bench --quick; takes three minutes")
    add("--results", metavar="FILE", nargs="+", type=Path,
        help="files of attnkit bench --json --repeat 5, one for each machine; the lowest result of a row counts")
    add("--raise", action="store_true", dest="is_raise",
        help=f"raise each floor to {KEPT['GFLOPS']:.0%}% of the result (reading memory: {KEPT['GBps']:.0%}%), if "
        "this is higher than the floor. Add a new row to the file by hand, with the floor 0. Add a CPU "
        "family to a row by hand, at first with the row's number for any machine")
    add("--base", metavar="REVISION", nargs="?", const="",
        help="compare the file with the file of a revision of git; by default, of the commit where the branch "
        "left the main branch or, on the main branch, of the previous commit")
    add("--floors", metavar="FILE", type=Path, default=ROOT / "bench" / "floors",
        help="a file instead of bench/floors")
    given = options.parse_args()
    if given.base is not None and (given.results or given.is_raise or given.quick):
        options.error("--base measures nothing: leave out --results, --raise and --quick")
    if given.is_raise and given.quick:
        options.error("--raise needs more measurements than --quick makes")
    return given


# ---------------------------------------------------------------------------------- the file


def parse_floor(words, where):
    """Returns the Floor that the words '71.5', 'zen4=80.0', ... describe."""
    pairs = [re.fullmatch(r"(\w+)=(\d+(?:\.\d)?)", word) for word in words[1:]]
    if not words or not re.fullmatch(r"\d+(\.\d)?", words[0]) or not all(pairs):
        fail(f"{where}: must be the name of a row, one percentage such as 71.5 and, if wanted, percentages of "
             "CPU families, such as zen4=80.0")
    floor = Floor(float(words[0]), {pair[1]: float(pair[2]) for pair in pairs})
    for name, percent in floor.families.items():
        if name not in cpus.FAMILIES:
            fail(f"{where}: no CPU family {name}; there are {', '.join(cpus.FAMILIES)}")
        if percent < floor.common:
            fail(f"{where}: the floor of {name} is below the floor for any machine")
    if len(floor.families) < len(pairs):
        fail(f"{where}: a CPU family is named twice")
    return floor


def parse(text, where):
    """Reads the floors in a text. Returns name -> Floor."""
    floors = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or line.startswith("#"):
            continue
        place = f"{where}:{number}"
        if words[0] in floors:
            fail(f"{place}: {words[0]} has two lines")
        floors[words[0]] = parse_floor(words[1:], place)
    if list(floors) != sorted(floors):
        fail(f"{where}: the rows must be sorted")
    return floors


def read_floors(path):
    try:
        return parse(path.read_text(encoding="utf-8"), path)
    except OSError as problem:
        fail(f"cannot read {path}: {problem.strerror}")
    except UnicodeDecodeError as problem:
        fail(f"{path} is no text: {problem}")


def write_floors(path, floors):
    """Writes the floors to the file. Changes only the numbers."""
    lines = path.read_text(encoding="utf-8").splitlines()
    for i, line in enumerate(lines):
        name = line.split(" ")[0]
        if name in floors:
            lines[i] = f"{name} {floors[name]}"
    try:
        with whole(path) as part:
            part.write_text("\n".join(lines) + "\n", encoding="utf-8")
    except OSError as problem:
        fail(f"cannot write {path}: {problem.strerror}")


# ---------------------------------------------------------------------- floors only go up


def git(*words):
    """Returns the output of git, or None if git fails."""
    try:
        done = subprocess.run(["git", *words], text=True, capture_output=True)
    except OSError as problem:
        fail(f"cannot start git: {problem.strerror}")
    return done.stdout if done.returncode == 0 else None


def families_of(*floors):
    """Returns a list. It begins with None, which stands for any machine. The CPU families that have a number in one of
    the floors follow."""
    return [None, *dict.fromkeys(name for floor in floors for name in floor.families)]


def lowered(name, old, now):
    """Returns messages about the families for which a floor is lower now, or a message that the floor is gone. old and
    now are Floors; now is None if the floor is gone."""
    if not now:
        return [f"{name}: the floor was {old.common:.1f}, is gone"]
    return [f"{name}: the floor{f' of {family}' if family else ''} was {old.of(family):.1f}, "
            f"is {now.of(family):.1f}"
            for family in families_of(old, now) if now.of(family) < old.of(family)]


def is_higher(old, now):
    return any(now.of(family) > old.of(family) for family in families_of(old, now))


def compare_with_base(options):
    folder = str(options.floors.resolve().parent)
    base = options.base or base_revision(folder)
    if not base:
        print("floors.py: nothing to compare with: no git, or no commit before this commit")
        return NOTHING_TO_SEE
    if git("-C", folder, "rev-parse", "--verify", "--quiet", base + "^{commit}") is None:
        fail(f"git knows no revision {base}")
    before = git("-C", folder, "show", f"{base}:./{options.floors.name}")
    now = read_floors(options.floors)
    old = parse(before or "", f"{options.floors.name} of {base}")
    wrong = [line for name, floor in old.items() for line in lowered(name, floor, now.get(name))]
    higher = sum(is_higher(old[name], now[name]) for name in old if name in now)
    print("\n".join(wrong) or f"none of {len(old)} floors is lower than in {base[:12]}; {higher} are "
          f"higher, {len(now.keys() - old.keys())} new")
    return BROKEN if wrong else 0


# ------------------------------------------------------------------------------- measuring


def attnkit(options, *words, output=None):
    command = [str(options.build / "tools" / "attnkit"), "bench", *words]
    try:
        return subprocess.run(command, check=True, text=True, timeout=TIME_LIMIT,
                              stdout=output or subprocess.DEVNULL).stdout
    except OSError as problem:
        fail(f"cannot start {command[0]}: {problem.strerror}")
    except subprocess.SubprocessError as problem:
        fail(str(problem))


def rows_here(options, floors):
    """Returns the names of the rows that have a floor and that this machine can run; with --quick, only the rows of
    attnkit bench --quick. Fails if a row with a floor does not exist, although other rows of the same instruction set
    exist: its floor would never be checked."""
    words = ["--quick"] if options.quick else []
    here = attnkit(options, "--list", output=subprocess.PIPE).split()
    lost = [name for name in floors
            if name not in here and results.isa(name) in {results.isa(row) for row in here}]
    if lost:
        fail(f"attnkit bench has no row {', '.join(lost)}")
    chosen = set(attnkit(options, "--list", *words, output=subprocess.PIPE).split())
    return [name for name in floors if name in chosen]


def bench(options, names):
    """Measures the rows `names`. Returns a results.Run."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "results.json"
        attnkit(options, "--filter", f"^({'|'.join(names)})$", "--json", str(file), "--repeat",
                str(QUICK_REPEATS if options.quick else REPEATS), *["--quick"] * options.quick)
        return results.read(file)


def measure(options, floors):
    """Measures this machine. Repeats rows with too few undisturbed measurements, and rows below their floor. Does not
    repeat a row without any measurement. Returns a list with one Machine."""
    here = Machine(None, {})
    again = rows_here(options, floors)
    for _ in range(QUICK_ROUNDS if options.quick else ROUNDS):
        if not again:
            break
        run = bench(options, again)
        here.family = cpus.family_of(run.context)
        for name, row in run.rows.items():
            here.rows.setdefault(name, results.Row(name, [])).measurements += row.measurements
        again = [name for name in again if here.rows[name].measurements and
                 verdict(here.rows[name], floors[name].of(here.family), least(options)) != "holds"]
    return [here]


def read_machine(path):
    run = results.read(path)
    return Machine(cpus.family_of(run.context), run.rows)


def least(options):
    """Returns how many undisturbed measurements a row needs to be judged."""
    return (QUICK_REPEATS if options.quick else REPEATS) // 2 + 1


# --------------------------------------------------------------------------------- judging


def verdict(row, floor, least_measurements):
    if len(row.undisturbed) < least_measurements:
        return "not judged"
    return "holds" if row.median("roof_pct") >= floor else "BELOW"


def share(row, percent):
    """Returns the ratio of a row's result to its floor."""
    return row.median("roof_pct") / max(percent, 0.1)


def measured(machines, name):
    """Returns (family, row) of each machine, or an empty list if a machine has not measured the row."""
    found = [(machine.family, machine.rows[name]) for machine in machines if name in machine.rows]
    found = [(family, row) for family, row in found if row.median("roof_pct") is not None]
    return found if len(found) == len(machines) else []


def judge(options, floors, machines):
    """Returns, for each row that all machines have measured, (name, percent, row, verdict) of the machine on which the
    ratio of the result to the floor is smallest. The worst row is first."""
    lines = []
    for name, floor in floors.items():
        found = [(floor.of(family), row) for family, row in measured(machines, name)]
        if found:
            percent, row = min(found, key=lambda pair: share(pair[1], pair[0]))
            lines.append((name, percent, row, verdict(row, percent, least(options))))
    return sorted(lines, key=lambda line: share(line[2], line[1]))


def print_lines(lines):
    width = max(len(line[0]) for line in lines)
    print(f"{'row':{width}}  {'floor':>7}  {'measured':>8}  verdict")
    for name, floor, row, word in lines:
        disturbed = len(row.measurements) - len(row.undisturbed)
        note = f", {disturbed} of {len(row.measurements)} measurements disturbed" if disturbed else ""
        print(f"{name:{width}}  {floor:5.1f} %  {row.median('roof_pct'):6.1f} %  {word}{note}")


def check(options, floors, machines):
    lines = judge(options, floors, machines)
    if not lines:
        fail("no row with a floor was measured")
    print_lines(lines)
    words = [line[3] for line in lines]
    counts = {word: words.count(word) for word in ("holds", "BELOW", "not judged")}
    print(f"{counts['holds']} floors hold, {counts['BELOW']} do not, {counts['not judged']} were not "
          f"judged; {len(floors) - len(lines)} rows were not measured")
    return BROKEN if counts["BELOW"] else NOT_JUDGED if counts["not judged"] else 0


def kept(name, machines):
    """Returns the lowest result of the machines for the row `name`, lowered by a margin, or 0 if a machine has fewer
    than REPEATS undisturbed measurements of the row."""
    rows = [row for _, row in measured(machines, name)]
    if not rows or any(len(row.undisturbed) < REPEATS for row in rows):
        return 0.0
    part = next(KEPT[key] for key in KEPT if key in rows[0].measurements[0])
    return math.floor(10 * part * min(row.median("roof_pct") for row in rows)) / 10


def raised(name, floor, machines):
    """Returns the Floor with its numbers raised as far as the results of `machines` allow. The number of a family
    depends only on the machines of this family. The number for any machine depends on all `machines`. If the floor has
    numbers of families, the number for any machine changes only under two conditions, because the results of one family
    say nothing about other families. `machines` are of at least two families, and each family with a number is among
    these families."""
    there = {machine.family for machine in machines}
    families = {family: max(percent, kept(name, [m for m in machines if m.family == family]))
                for family, percent in floor.families.items()}
    has_all = not families or (len(there) > 1 and there.issuperset(families))
    return Floor(max(floor.common, kept(name, machines)) if has_all else floor.common, families)


def raise_floors(options, floors, machines):
    higher = {name: raised(name, floor, machines) for name, floor in floors.items()}
    higher = {name: new for name, new in higher.items() if new != floors[name]}
    for name, new in higher.items():
        print(f"{name}: {floors[name]} -> {new}")
    if higher:
        write_floors(options.floors, higher)
    print(f"{len(higher)} of {len(floors)} floors are higher now")
    return 0


def main():
    options = read_options()
    if options.base is not None:
        return compare_with_base(options)
    floors = read_floors(options.floors)
    try:
        machines = [read_machine(path) for path in options.results] if options.results else \
            measure(options, floors)
    except results.Unusable as problem:
        fail(problem)
    return (raise_floors if options.is_raise else check)(options, floors, machines)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
