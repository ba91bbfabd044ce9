# SPDX-License-Identifier: Apache-2.0
"""Runs jobs in parallel, each in its own process. The output appears in the order of the jobs, as if the jobs ran one
after the other. The outcome of a job is its return value, its wall seconds, and the processor seconds of the job and of
the processes that it started."""

import multiprocessing
import os
import resource
import sys
import tempfile
import time
import traceback
from collections import namedtuple

LOOK_EVERY = 0.2  # seconds between two checks for new output

# name: the job's name; work: a function without arguments; after: names of the jobs that must end before this job
# starts; alone: whether no other job may run at the same time.
Job = namedtuple("Job", "name work after alone", defaults=((), False))

# value: the return value of `work`, or None if `work` raised an exception or its process ended early. wall, processor:
# numbers of seconds. `processor` is 0 if the process ended early.
Outcome = namedtuple("Outcome", "value wall processor")


def processor_seconds():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def work_in_child(job, output, pipe):
    os.dup2(output.fileno(), 1)
    os.dup2(output.fileno(), 2)
    began, before, value = time.monotonic(), processor_seconds(), None
    try:
        value = job.work()
    except BaseException:  # sys.exit in a job is a failure, too
        traceback.print_exc()
    sys.stdout.flush()
    pipe.send(Outcome(value, time.monotonic() - began, processor_seconds() - before))


class Running:
    """A job that has started."""

    def __init__(self, job):
        self.job = job
        self.output = tempfile.TemporaryFile()
        self.shown = 0
        self.outcome = None
        self.began = time.monotonic()
        fork = multiprocessing.get_context("fork")
        self.pipe, to_parent = fork.Pipe(duplex=False)
        self.process = fork.Process(target=work_in_child, args=(job, self.output, to_parent))
        sys.stdout.flush()
        self.process.start()
        to_parent.close()

    def show(self):
        """Prints new output of the job. The function reads at its own offset, because the job's process writes to the
        same file."""
        new = os.pread(self.output.fileno(), os.fstat(self.output.fileno()).st_size - self.shown,
                       self.shown)
        self.shown += len(new)
        sys.stdout.buffer.write(new)
        sys.stdout.flush()

    def look(self):
        """Takes the outcome if the job's process has sent one or has ended. If the process ended without an outcome,
        the value is None."""
        if self.outcome or not self.pipe.poll():
            return
        try:
            self.outcome = self.pipe.recv()
        except EOFError:
            self.outcome = Outcome(None, time.monotonic() - self.began, 0.0)
        self.process.join()


def may_start(job, running, at_once):
    busy = [r for r in running.values() if not r.outcome]
    if any(name not in running or not running[name].outcome for name in job.after):
        return False
    if job.alone or any(r.job.alone for r in busy):
        return not busy
    return len(busy) < at_once


def run_jobs(jobs, at_once, ended=lambda job, outcome: None):
    """Runs at most `at_once` jobs at a time, and yields (job, outcome) in the order of the jobs. When a job has ended,
    calls `ended`, and then starts the jobs that wait for this job. Ignores names in `after` that belong to no job."""
    names = {job.name for job in jobs}
    jobs = [job._replace(after=tuple(n for n in job.after if n in names)) for job in jobs]
    running, told = {}, set()
    for shown in jobs:
        while True:
            for job in jobs:
                if job.name not in running and may_start(job, running, at_once):
                    running[job.name] = Running(job)
            for r in running.values():
                r.look()
                if r.outcome and r.job.name not in told:
                    told.add(r.job.name)
                    ended(r.job, r.outcome)
            if shown.name in running:
                running[shown.name].show()
                if running[shown.name].outcome:
                    break
            time.sleep(LOOK_EVERY)
        running[shown.name].show()
        yield shown, running[shown.name].outcome
