# SPDX-License-Identifier: Apache-2.0
"""Reads files that `attnkit bench` wrote with --json or --history. The files have the measurements and the machine.
Other files and incomplete files are refused."""

import dataclasses
import datetime
import json
import math
from statistics import median

LEAST_SHARE = 0.97  # an undisturbed row has its processors for at least this share of its time
ISAS = ("scalar", "avx2", "avx512", "neon")
FIGURES = {"roof_pct", "roof_GFLOPS", "roof_GBps", "GFLOPS", "GBps", "ns_per_element", "FLOP_per_byte"}
WORK = {"GFLOPS", "GBps", "ns_per_element"}  # a measured row has one of these


class Unusable(Exception):
    """A file cannot be read or is no result of `attnkit bench` or tools/peers.py, or a folder does not exist or has no
    results. The message has the reason."""


@dataclasses.dataclass
class Row:
    """The measurements of a row in a run. A row that was not measured has no measurements."""
    name: str
    measurements: list

    @property
    def family(self):
        return family(self.name)

    @property
    def isa(self):
        return isa(self.name)

    @property
    def threads(self):
        return threads(self.name)

    @property
    def undisturbed(self):
        return [m for m in self.measurements if is_undisturbed(m, self.threads)]

    def median(self, key):
        """Returns the median of the figure `key` of the undisturbed measurements, or of all measurements if none is
        undisturbed. Returns None if none of these measurements has the figure."""
        values = [m[key] for m in self.undisturbed or self.measurements if key in m]
        return median(values) if values else None


@dataclasses.dataclass
class Run:
    path: str
    context: dict
    rows: dict  # name -> Row
    date: datetime.datetime

    @property
    def machine(self):
        """Returns the name and model of the CPU. Runs with the same name and model are comparable."""
        return ", ".join(filter(None, (self.context.get("cpu"), self.context.get("cpu_model"))))

    @property
    def commit(self):
        return self.context.get("commit", "unknown")


def family(name):
    return name.split("/")[0]


def isa(name):
    """Returns the instruction set in a name such as tile/scores/f32/avx2/D128, fma/avx2 or prefill/f32/avx2/SHAPE.
    Returns None for a name without an instruction set, such as read/L1."""
    return next((part for part in name.split("/") if part in ISAS), None)


def threads(name):
    last = name.rsplit("/", 1)[-1]
    return int(last[1:]) if last[0] == "t" and last[1:].isdigit() else 1


def is_undisturbed(measurement, row_threads):
    return measurement["cpu_time"] >= LEAST_SHARE * measurement["real_time"] * row_threads


def read(path):
    """Returns the Run in a file of `attnkit bench`."""
    return read_json(path, "attnkit bench", lambda content: understand(path, content))


def read_json(path, whose, understand_it):
    """Returns what understand_it() makes of the content of a file. Raises Unusable if the file cannot be read, is
    incomplete, or was not written by the program `whose`."""
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except OSError as problem:
        raise Unusable(f"cannot read {path}: {problem.strerror}") from None
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise Unusable(f"{path} is no whole JSON: {problem}") from None
    try:
        return understand_it(content)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as problem:
        raise Unusable(f"{path} is JSON, but not of {whose}: {type(problem).__name__}: "
                       f"{problem}") from None


def understand(path, content):
    context = content["context"]
    check_words(context)
    rows = {}
    for entry in content["benchmarks"]:
        if entry.get("run_type", "iteration") != "iteration":
            continue
        name = checked(entry)
        row = rows.setdefault(name, Row(name, []))
        if not entry.get("error_occurred") and WORK & set(entry):
            row.measurements.append(entry)
    date = datetime.datetime.fromisoformat(context["date"])
    return Run(str(path), context, rows, date.astimezone(datetime.timezone.utc))


def check_words(context):
    """Refuses results of other programs, whose context has no version of attnkit. Also refuses a context in which one
    of the values below is not a string. Results of older versions of attnkit may lack all of these values except the
    version. read_json turns the exceptions into Unusable."""
    for key in "attnkit", "cpu", "cpu_model", "commit", "compiler", "isas":
        if not isinstance(context[key] if key == "attnkit" else context.get(key, ""), str):
            raise ValueError(f"{key} is {context[key]}")


def checked(entry):
    """Checks the figures of a row and returns its name."""
    if not isinstance(entry["name"], str) or not entry["name"]:
        raise ValueError(f"name is {entry['name']}")
    if entry.get("error_occurred"):
        return entry["name"]
    for key in {"real_time", "cpu_time"} | FIGURES & set(entry):
        if not math.isfinite(entry[key]) or entry[key] <= 0:
            raise ValueError(f"{key} of {entry['name']} is {entry[key]}")
    return entry["name"]
