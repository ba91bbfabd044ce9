# SPDX-License-Identifier: Apache-2.0
"""The process of one candidate. It imports the candidate's library, builds the forms of a workload
(libraries/forms.py), checks each form against the oracle, keeps the fastest correct form, and calls it on request.

    worker.py DESCRIPTOR MODULE    DESCRIPTOR: the connection to remote.py; MODULE: in libraries/
"""

import ctypes
import gc
import importlib
import importlib.util
import itertools
import os
import signal
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

from layers import tensors_of
from libraries.forms import Cannot
from tensors import cold_copies

PR_SET_PDEATHSIG = 1
TRIAL = 0.15        # seconds that a trial lasts after its first calls (one on each copy), but at most TRIAL_CALLS calls
TRIAL_CALLS = 50
LONG = 1.0          # seconds; if the first calls take longer on average, the trial ends after them
WARM = 0.25         # seconds; a longer call needs no warm-up of caches


def one_line(error):
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else text[:197] + "..."


def waited():
    """Returns how many seconds the threads of this process have waited for a processor, as a sum over the threads. The
    sum is 0 if Linux does not report the waiting."""
    seconds = 0
    for path in Path("/proc/self/task").glob("*/schedstat"):
        try:
            seconds += int(path.read_text().split()[1]) * 1e-9
        except OSError:  # the thread has ended, or Linux does not count
            pass
    return seconds


class Candidate:
    """The candidate, with the fastest correct form of the current workload, ready to be called."""

    def __init__(self, module, setting):
        self.module, self.setting = module, setting
        self.clock = time.process_time if setting.processor_time else time.perf_counter
        self.form = self.oracle = self.calls = None
        self.warm = False

    def make_calls(self, calls, count):
        """Makes `count` calls. Returns the mean time of a call in seconds."""
        start = self.clock()
        for call in itertools.islice(calls, count):
            call()
        return (self.clock() - start) / count

    def forms(self, workload, tensors):
        """Returns the forms of a workload. The forms of layers and linear maps are in a module beside the module of
        attention."""
        if workload.kind == "attention":
            return self.module.forms(workload, tensors, self.setting)
        name = self.module.__name__.replace(".", ".layers_")
        if not importlib.util.find_spec(name):
            raise Cannot("layers and linear maps are not tried")
        forms_of = getattr(importlib.import_module(name), workload.kind + "_forms")
        return forms_of(workload, tensors, self.setting)

    def try_form(self, make, tensors):
        """Tries a form. Returns (form, error, time of its fastest call in seconds). For calls longer than LONG, the
        time is the mean of the first calls."""
        tensors.forget_out()
        form = make()
        first = self.make_calls(form.calls, len(form.calls))
        error = self.oracle.error(form.output())
        if first > LONG:
            return form, error, first
        start, best = self.clock(), float("inf")
        for call in itertools.islice(itertools.cycle(form.calls), TRIAL_CALLS):
            best = min(best, self.make_calls([call], 1))
            if self.clock() - start > TRIAL:
                break
        return form, error, best

    def prepare(self, workload, oracle):
        """Tries all forms and keeps the fastest correct form. Returns a dict: name of the form -> its seconds, its
        error and whether it is wrong, or the reason why it cannot run."""
        self.form = self.calls = None
        copies = cold_copies(workload, self.setting.cold)
        self.oracle, tensors, tried = oracle, tensors_of(workload, copies), {}
        for name, make in self.forms(workload, tensors):
            try:
                form, error, seconds = self.try_form(make, tensors)
            except Exception as problem:  # a library may raise any exception
                tried[name] = {"cannot": one_line(problem)}
                continue
            tried[name] = {"seconds": seconds, "error": error, "wrong": oracle.is_wrong(error)}
            right = [t["seconds"] for t in tried.values() if "seconds" in t and not t["wrong"]]
            if not tried[name]["wrong"] and seconds <= min(right):
                self.form, self.warm = form, seconds < WARM
        if self.form:
            self.calls = itertools.cycle(self.form.calls)
        return tried

    def touch(self):
        """Makes one call on each copy of the cold data (cold_copies in tensors.py), so that every copy is read. While
        other candidates were prepared, a hypervisor may have taken back the memory of the copies."""
        self.make_calls(self.form.calls, len(self.form.calls))

    def turn(self, count):
        """Makes `count` calls, after some warm-up calls if the calls are shorter than WARM. Returns the seconds per
        call, and how many seconds per call the threads waited for a processor."""
        if self.warm:
            self.make_calls(self.calls, -(-count // 10))
        before = waited()
        seconds = self.make_calls(self.calls, count)
        return seconds, (waited() - before) / count

    def finish(self):
        """Returns the error of the last timed call's output."""
        return self.oracle.error(self.form.output())


def serve(connection, candidate):
    commands = {"prepare": candidate.prepare, "touch": candidate.touch, "turn": candidate.turn,
                "finish": candidate.finish}
    while True:
        try:
            name, arguments = connection.recv()
        except EOFError:
            return
        try:
            connection.send((True, commands[name](*arguments)))
        except Exception as problem:
            connection.send((False, one_line(problem)))


def main():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # ends even a stopped worker when its parent ends
    connection = Connection(int(sys.argv[1]))
    setting = connection.recv()
    try:
        module = importlib.import_module("libraries." + sys.argv[2])
        connection.send((True, module.version()))
    except (Exception, SystemExit) as problem:
        connection.send((False, one_line(problem)))
        return
    gc.disable()
    serve(connection, Candidate(module, setting))
    os._exit(0)  # without the cleanup, in which some libraries crash


main()
