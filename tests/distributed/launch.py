# SPDX-License-Identifier: Apache-2.0
"""Starts the ranks of a test: as processes that meet over gloo, or by mpiexec. Ranks that have not ended after a time
limit are killed."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
HELPERS = HERE.parent / "python"  # the folder of distributed_cases.py


def mpiexec(size, *options):
    """Returns the command that starts `size` ranks. The command also works if there are fewer cores than ranks, and for
    the user root, as in containers."""
    command = [shutil.which("mpiexec") or "mpiexec", "--oversubscribe", *options]
    if os.getuid() == 0:
        command.append("--allow-run-as-root")
    return [*command, "-n", str(size)]


def environment():
    paths = [str(HERE), str(HELPERS)]
    return dict(os.environ, PYTHONPATH=os.pathsep.join(paths), OMP_NUM_THREADS="1")


def end(process):
    """Kills a process and all processes of its group. SIGKILL also ends stopped processes. Returns the output of the
    process."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    return process.communicate()[0]


def finish(process, seconds):
    """Waits for a process, and returns its output. After `seconds`, kills the process and all processes of its
    group."""
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        output = end(process) + "\ntime-out"
    except BaseException:
        end(process)
        raise
    return output


def start(command, **more):
    return subprocess.Popen([str(word) for word in command], text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True, **more)


def over_gloo(size, command, seconds, lost=()):
    """Runs a command on each rank. Returns the exit status of each rank, and the output of all ranks as one text. The
    ranks in `lost` need not end: they are killed when all other ranks have ended."""
    with tempfile.TemporaryDirectory() as folder:
        processes = [start(command, env=dict(environment(), RANK=str(rank), WORLD_SIZE=str(size),
                                             MEETING=f"{folder}/meeting")) for rank in range(size)]
        texts = []
        try:
            texts += [finish(process, seconds) for rank, process in enumerate(processes) if rank not in lost]
        finally:
            texts += [end(process) for process in processes if process.returncode is None]
    return [process.returncode for process in processes], "\n".join(texts)


def over_mpi(size, command, seconds, *options):
    """Runs a command on each rank, by mpiexec. Returns a list with mpiexec's exit status, and the output of all ranks
    as one text."""
    process = start([*mpiexec(size, *options), *command], env=environment())
    text = finish(process, seconds)
    return [process.returncode], text


def reports(text):
    """Returns the reports of ranks.py by rank. mpiexec may join two ranks' lines."""
    decoder, found, at = json.JSONDecoder(), {}, text.find('{"rank"')
    while at >= 0:
        report, end = decoder.raw_decode(text, at)
        found[report["rank"]] = report
        at = text.find('{"rank"', end)
    return found
