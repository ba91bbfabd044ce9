# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of docs/distributed.md. For each of two programs, the page gives the command that starts the
program on 2 ranks, and the script uses this command. The script also runs the code at the top of the page, by torchrun
on 2 ranks, and the program of the cost model, in one process. A program whose output is on the page must print this
output.

    page.py PYTHON

PYTHON is an interpreter that has attnkit, torch and mpi4py.
"""

import re
import sys
import tempfile
from pathlib import Path

import launch

PAGE = Path(__file__).resolve().parents[2] / "docs" / "distributed.md"
FENCE = re.compile(r"^```(python|text|sh)\n(.*?)^```$", re.S | re.M)
PRELUDE = """
import numpy as np
from torch import distributed

distributed.init_process_group("gloo")
q, k, v = (np.ones((1, 2, n, 16), np.float32) for n in (3, 512, 512))
"""


def command_of(text):
    """Returns the words of a command of the page, but with PYTHON as the interpreter, and with the options of mpiexec
    that this machine needs."""
    words = text.split()
    if words[0] == "mpiexec":
        return [*launch.mpiexec(int(words[2])), sys.argv[1], *words[4:]]
    assert words[0] == "torchrun", words
    return [sys.argv[1], "-m", "torch.distributed.run", *words[1:]]


def run(folder, name, program, command):
    Path(folder, name).write_text(program)
    process = launch.start(command_of(command), env=dict(launch.environment(), PYTHONWARNINGS="ignore"), cwd=folder)
    output = launch.finish(process, 300)
    return output, process.returncode


def main():
    fences = FENCE.findall(PAGE.read_text())
    kinds = [kind for kind, _ in fences]
    assert kinds == ["python", "python", "sh", "text", "python", "sh", "text", "python", "text"], kinds
    texts = [text for _, text in fences]
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        output, status = run(folder, "lines.py", PRELUDE + texts[0] + "print(out.shape)\n",
                             "torchrun --nproc-per-node 2 lines.py")
        if status or output.count("(1, 2, 3, 16)") != 2:
            wrong.append(output)
        for program, command, expected in (texts[1:4], texts[4:7]):
            output, status = run(folder, command.split()[-1], program, command)
            if status or expected not in output:
                wrong.append(f"{command}{output}")
    process = launch.start([sys.argv[1], "-c", texts[7]])
    output = launch.finish(process, 60)
    if process.returncode or output != texts[8]:
        wrong.append(output)
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
