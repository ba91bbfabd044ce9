# SPDX-License-Identifier: Apache-2.0
"""Reads a folder of results as series. Each machine has its runs in the order of time. The series of a row has the
row's percentage of the roof in each run, and its changes. Runs of different machines are never in one series."""

import dataclasses
from pathlib import Path
from statistics import median

import changes
import results

ROOFS = ("fma", "read")  # families of rows that are the roofs themselves


@dataclasses.dataclass
class Point:
    run: int          # index among the machine's runs
    percent: float
    undisturbed: bool


@dataclasses.dataclass
class Change:
    """A change of a row to a new level, which begins at the run with index `run`."""
    machine: str
    row: str
    run: int          # index among the machine's runs
    commit: str
    date: object
    before: float     # medians of the levels, percent of the roof
    after: float
    now: float        # median of the newest level

    @property
    def step(self):
        return self.after / self.before - 1

    @property
    def is_open(self):
        """Returns whether speed was lost and has not come back."""
        return self.step < 0 and self.now < (1 - changes.LEAST_STEP) * self.before


@dataclasses.dataclass
class Series:
    name: str
    points: list
    levels: list      # for each level, (first run, last run, median) of its undisturbed points
    changes: list

    @property
    def now(self):
        return self.levels[-1][2] if self.levels else self.points[-1].percent


@dataclasses.dataclass
class Machine:
    name: str
    runs: list
    series: dict      # row -> Series

    @property
    def changes(self):
        return [change for series in self.series.values() for change in series.changes]

    @property
    def last(self):
        return self.runs[-1]


def read(folder):
    """Reads a folder. Returns the machines in the order of their newest runs, the newest first."""
    folder = Path(folder)
    if not folder.is_dir():
        raise results.Unusable(f"{folder} is no folder")
    runs = [results.read(path) for path in sorted(folder.glob("*.json"))]
    if not runs:
        raise results.Unusable(f"{folder} has no runs: attnkit bench --history {folder} writes a run")
    runs.sort(key=lambda run: run.date)
    by_machine = {}
    for run in runs:
        by_machine.setdefault(run.machine, []).append(run)
    return sorted((understand(name, of_it) for name, of_it in by_machine.items()),
                  key=lambda machine: machine.last.date, reverse=True)


def understand(name, runs):
    points = {}
    for i, run in enumerate(runs):
        for row in run.rows.values():
            percent = row.median("roof_pct")
            if percent is not None and row.family not in ROOFS:
                points.setdefault(row.name, []).append(Point(i, percent, bool(row.undisturbed)))
    return Machine(name, runs, {row: series(name, row, runs, points[row]) for row in sorted(points)})


def series(machine, row, runs, points):
    """Returns the series of a row. Disturbed points do not count for levels."""
    good = [point for point in points if point.undisturbed]
    starts = changes.find([point.percent for point in good])
    parts = [good[start:end] for start, end in zip([0, *starts], [*starts, len(good)])] if good else []
    levels = [(part[0].run, part[-1].run, median(point.percent for point in part)) for part in parts]
    found = [Change(machine, row, after[0], runs[after[0]].commit, runs[after[0]].date, before[2], after[2],
                    now=levels[-1][2]) for before, after in zip(levels, levels[1:])]
    return Series(row, points, levels, found)
