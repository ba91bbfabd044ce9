# SPDX-License-Identifier: Apache-2.0
"""Measures the candidates in rounds. In each round, every correct candidate is measured once, in a new random order. So
a change of the clock rate, or another program on the machine, affects all candidates alike. The roof is measured before
the first round and after each round. Medians over the rounds are reported.

All candidates run on the same processors. Each candidate has a process of its own, because libraries in one process
share OpenMP and BLAS settings and can crash each other. Only one of these processes runs at any time. The other
processes are stopped. Thus a library's threads may spin between its own calls, as they do in other programs, but never
during the calls of another library. A measurement of a candidate is called its turn. A turn is one call, or as many
calls as fill TURN seconds. Unless a call takes long (WARM in worker.py), some untimed calls warm the caches before a
turn."""

import random
import sys
import time
from statistics import median

from columns import fits
from layers import oracle_of
from libraries.forms import Cannot, Setting
from remote import Worker

TURN = 0.02
# The measurements of a candidate are disturbed if its threads wait for a processor for more than this share of time.
# The share that counts is the mean over the candidate's threads, in the median round.
DISTURBED = 0.03


def say(text):
    print(text, file=sys.stderr, flush=True)


class Contest:
    """All candidates, with the processes in which they run, and the settings of the measurement."""

    def __init__(self, columns, options, library, roofs):
        self.columns, self.options, self.roofs = columns, options, roofs
        self.workers, self.absent, self.versions = {}, {}, {}
        self.library = library
        self.random = random.Random(1)

    def __enter__(self):
        try:
            for column in self.columns:
                self.start(column)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for worker in self.workers.values():
            worker.end()

    def start(self, column):
        setting = Setting(self.options.threads, self.library, column.isa,
                          self.options.processor_time, self.options.cold, column.mode)
        say(f"starting {column.title}")
        try:
            self.workers[column] = Worker(column.module, setting)
            self.versions[column] = self.workers[column].version
        except Cannot as problem:
            self.absent[column] = str(problem)

    def ask(self, column, *command):
        """Sends a command to a candidate's process and returns the answer. Raises Cannot if the command or the process
        fails. If the process died, also starts a new process for the next workload."""
        worker = self.workers.get(column)
        if worker is None:
            raise Cannot(self.absent[column])
        try:
            return worker.ask(*command)
        except Cannot:
            if not worker.alive:
                worker.end()
                del self.workers[column]
                self.start(column)
            raise

    # ------------------------------------------------------------------------- a workload

    def prepare(self, column, workload, oracle):
        """Returns a result without times of turns. Its status is 'ok', 'wrong', 'cannot', or 'none' if the column's
        mode is for other workloads."""
        if not fits(column, workload):
            return {"status": "none"}
        try:
            forms = self.ask(column, "prepare", workload, oracle)
        except Cannot as problem:
            return {"status": "cannot", "reason": str(problem)}
        ran = {name: form for name, form in forms.items() if "seconds" in form}
        if not ran:
            reason = "; ".join(f"{name}: {form['cannot']}" for name, form in forms.items())
            return {"status": "cannot", "reason": reason, "forms": forms}
        right = {name: form for name, form in ran.items() if not form["wrong"]}
        best = min(right or ran, key=lambda name: ran[name]["seconds"])
        return {"status": "ok" if right else "wrong", "form": best, "forms": forms,
                "error": ran[best]["error"], "rounds": [], "waited_rounds": [],
                "calls_in_a_turn": max(1, round(TURN / ran[best]["seconds"]))}

    def touch(self, column, result):
        try:
            self.ask(column, "touch")
        except Cannot as problem:
            result.update(status="cannot", reason=str(problem))

    def turn(self, column, result):
        try:
            seconds, waited = self.ask(column, "turn", result["calls_in_a_turn"])
        except Cannot as problem:
            result.update(status="cannot", reason=str(problem))
            return
        result["rounds"].append(seconds)
        result["waited_rounds"].append(waited)

    def rounds(self, workload, results):
        """Measures the times of all correct candidates. Returns the measurements of the roof."""
        def able():
            return [column for column, result in results.items() if result["status"] == "ok"]
        for column in able():
            self.touch(column, results[column])
        bursts = [self.roofs.burst(workload.roof)]
        for number in range(self.options.rounds):
            for column in self.random.sample(able(), len(able())):
                self.turn(column, results[column])
            bursts.append(self.roofs.burst(workload.roof))
            if sys.stderr.isatty():
                print(f"\r    round {number + 1} of {self.options.rounds} ", end="", file=sys.stderr)
        if sys.stderr.isatty():
            print("\r" + " " * 30 + "\r", end="", file=sys.stderr)
        return bursts

    def finish(self, column, result, oracle):
        """Checks the output of the last call, and computes the median of the times."""
        try:
            error = self.ask(column, "finish")
        except Cannot as problem:
            result.update(status="cannot", reason=str(problem))
            return
        result["error"] = max(result["error"], error)
        if oracle.is_wrong(error):
            result["status"] = "wrong"
            return
        result["seconds"] = median(result["rounds"])
        shares = [w / s for w, s in zip(result["waited_rounds"], result["rounds"])]
        result["disturbed"] = (not self.options.processor_time and
                               median(shares) > DISTURBED * self.options.threads)

    def run(self, workload):
        """Measures a workload. Returns the workload's entry in the JSON file."""
        began = time.monotonic()
        oracle = oracle_of(workload)
        results = {column: self.prepare(column, workload, oracle) for column in self.columns}
        ready = time.monotonic()
        bursts = self.rounds(workload, results)
        for column, result in results.items():
            if result["status"] == "ok":
                self.finish(column, result, oracle)
        say(f"    prepared in {ready - began:.0f} s, measured in {time.monotonic() - ready:.0f} s")
        return summary(workload, oracle, bursts, results)


def summary(workload, oracle, bursts, results):
    """Returns the entry of a workload in the JSON file."""
    roof = None if None in bursts else median(bursts)
    for result in results.values():
        if "seconds" in result:
            result["speed"] = workload.work / result["seconds"]
            if roof:
                result["percent"] = 100 * result["speed"] / roof
    entry = {"name": workload.name, "shape": workload.shape, "type": workload.type,
             "tiny": workload.tiny, "flops": workload.flops, "bytes": workload.bytes,
             "cold_bytes": workload.cold_bytes, "checked_rows": len(oracle.rows),
             "largest": oracle.largest,
             "roof": {"kind": workload.roof, "speed": roof, "rounds": bursts},
             "results": {column.title: result for column, result in results.items()}}
    return {**entry, **ranking(results)}


def ranking(results):
    """Returns the fastest peer, and the peer's time divided by the time of attnkit's fastest column."""
    ours = [r["seconds"] for c, r in results.items() if c.isa and "seconds" in r]
    peers = {c.title: r["seconds"] for c, r in results.items() if not c.isa and "seconds" in r}
    if not peers:
        return {"best_peer": None, "ratio": None}
    best = min(peers, key=peers.get)
    return {"best_peer": best, "ratio": peers[best] / min(ours) if ours else None}
