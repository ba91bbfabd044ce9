# SPDX-License-Identifier: Apache-2.0
"""The program that conformance.py runs in the virtual environment. It makes the cases, and runs each case that
attnkit can express on every instruction set. Then it compares the results and prints TAP."""

import subprocess
import sys
from pathlib import Path

import cases
import compare
import onnx
from onnx import numpy_helper

TIME_LIMIT = 60  # seconds for a run of a program


class Tap:
    def __init__(self):
        self.count = self.failures = 0

    def line(self, ok, name, why=""):
        self.count += 1
        self.failures += not ok
        print(f"{'ok' if ok else 'not ok'} {self.count} - {name}")
        if not ok:
            print("".join(f"# {line}\n" for line in why.splitlines()), end="")


class Build:
    """The programs of a build, and the wrapper that runs them if they are for another machine."""

    def __init__(self, folder, wrapper=()):
        self.folder, self.wrapper = folder, wrapper
        self.cases = folder / "onnx-cases"

    def run(self, program, *arguments):
        """Runs a program. Returns its exit status and output, or -1 and "time-out" after TIME_LIMIT."""
        try:
            done = subprocess.run([*self.wrapper, self.folder / program, *arguments], text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  timeout=TIME_LIMIT)
        except subprocess.TimeoutExpired:
            return -1, "time-out"
        return done.returncode, done.stdout

    def isas(self):
        """Returns the instruction sets that can run."""
        status, output = self.run("tools/attnkit", "info", "--isas")
        return output.split() if status == 0 else sys.exit(f"attnkit info --isas: {output}")


def read_output(path):
    tensor = onnx.TensorProto()
    tensor.ParseFromString(path.read_bytes())
    return numpy_helper.to_array(tensor)


def why_wrong(build, case, isa):
    """Runs a case on an instruction set. Returns a description of the fault, or "" if the outputs are right. For a case
    that attnkit cannot express, runs nothing and returns the reason."""
    if case.cannot:
        return case.cannot
    out = build.cases / case.name / isa
    out.mkdir()
    status, said = build.run("tests/interop/onnx/onnx_attention", out.parent, out, isa)
    if status != 0:
        return f"exit status {status}\n{said}"
    wrong = []
    files = cases.names("output", case.node.output)
    for name, expected in zip(files, case.outputs, strict=True):
        different = compare.difference(read_output(out / name), expected, case)
        if different:
            wrong.append(f"{name}: {different}")
    return "\n".join(wrong)


def run_all(build, found, known):
    """Returns a dict: (name of a case, instruction set) -> what why_wrong returns for the case."""
    results = {}
    for case in found:
        cases.write(case, build.cases / case.name)
        for isa in known:
            results[case.name, isa] = why_wrong(build, case, isa)
    return results


def count(found, results, known):
    return sum(not any(results[case.name, isa] for isa in known) for case in found)


def report_attention(tap, found, results, known):
    for isa in known:
        for case in found:
            wrong = results[case.name, isa]
            tap.line(not wrong, f"{isa}: {case.name}", wrong)
        print(f"# {isa}: {count(found, results, [isa])} of {len(found)}")


def report_flex(tap, found, results, known):
    """Reports the cases of FlexAttention. Cases that attnkit cannot express count neither as failed nor as passed."""
    cannot = [case for case in found if case.cannot]
    tap.line([case.name for case in cannot] == cases.LEFT_OUT,
             "attnkit can express all cases but the known exceptions",
             "\n".join(f"{case.name}: {case.cannot}" for case in cannot))
    for case in found:
        if not case.cannot:
            wrong = "\n".join(f"{isa}: {results[case.name, isa]}" for isa in known
                              if results[case.name, isa])
            tap.line(not wrong, case.name, wrong)
    left_out = "; ".join(f"not {case.name}: {case.cannot}" for case in cannot)
    print(f"# onnx flexattention: {count(found, results, known)} of {len(found)} ({left_out})")


def main():
    build = Build(Path(sys.argv[1]).resolve(), sys.argv[2:])
    tap, known, found = Tap(), build.isas(), cases.collect()
    attention, flex = found["Attention"], found["FlexAttention"]
    for operator, expected in cases.COUNT.items():
        tap.line(len(found[operator]) == expected, f"there are {expected} cases of {operator}",
                 f"the package onnx {onnx.__version__} has {len(found[operator])}")
    blind = [case.name for case in attention + flex if not case.cannot and compare.blind(case)]
    tap.line(not blind, "a mistake in any output would be noticed", "\n".join(blind))
    tap.line(bool(known), "there are instruction sets to run")
    results = run_all(build, attention + flex, known)
    report_attention(tap, attention, results, known)
    report_flex(tap, flex, results, known)
    print(f"1..{tap.count}")
    print(f"# onnx attention: {count(attention, results, known)} of {cases.COUNT['Attention']} "
          f"(on each of {', '.join(known)})")
    return 1 if tap.failures else 0


if __name__ == "__main__":
    sys.exit(main())
