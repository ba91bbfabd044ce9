# SPDX-License-Identifier: Apache-2.0
"""Controls the candidates' processes from the measuring process. The candidates are the columns of the table of
tools/peers.py (columns.py), and each candidate has a process. A signal stops every process that is not being measured,
with all its threads."""

import os
import signal
import subprocess
import sys
import tempfile
from multiprocessing.connection import Pipe
from pathlib import Path

from libraries.forms import Cannot

PATIENCE = 600  # seconds to wait for an answer
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def environment(threads):
    return {**os.environ, **{name: str(threads) for name in THREADS}}


class Worker:
    """A candidate's process. Worker() and ask() raise Cannot if a command fails, or if the process dies or hangs. A
    process that hangs is ended."""

    def __init__(self, module, setting):
        self.log = tempfile.TemporaryFile()
        self.connection, theirs = Pipe()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, str(Path(__file__).parent / "worker.py"), str(theirs.fileno()),
                 module], pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=self.log,
                stderr=self.log, env=environment(setting.threads),
                start_new_session=True)  # Ctrl-C reaches only this process, which then ends the worker
        self.connection.send(setting)
        try:
            self.version = self.answer()
        except Cannot:
            self.end()
            raise

    def ask(self, command, *arguments):
        self.process.send_signal(signal.SIGCONT)
        try:
            self.connection.send((command, arguments))
        except OSError:
            raise Cannot(self.death()) from None
        return self.answer()

    def answer(self):
        try:
            if not self.connection.poll(PATIENCE):
                self.end()
                raise Cannot(f"no answer in {PATIENCE} s")
            ok, value = self.connection.recv()
        except (EOFError, OSError):
            raise Cannot(self.death()) from None
        self.process.send_signal(signal.SIGSTOP)
        if not ok:
            raise Cannot(value)
        return value

    def death(self):
        """Returns a text with the cause of the process's end and the last line of its output."""
        status = self.process.wait()
        self.log.seek(0)
        lines = self.log.read().decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        what = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        return f"its process ended: {what} {last[:160]}".strip()

    @property
    def alive(self):
        return self.process.poll() is None

    def end(self):
        self.process.kill()
        self.process.wait()
        self.connection.close()
        self.log.close()
