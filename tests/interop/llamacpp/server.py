#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs llama-server, stock and unpatched, by the command of docs/llamacpp.md. The server completes a text over HTTP
with a model of random weights, and the backend for ggml computes the model's attention. The script compares the answer
with the answer of a server without the backend.

    tests/interop/llamacpp/server.py [BUILD]     prints TAP
"""

import contextlib
import json
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools" / "llamacpp"))

import builds  # noqa: E402

PAGE = builds.ROOT / "docs" / "llamacpp.md"
PROMPT = PAGE.read_text()[:600]  # each byte is a token, so the prompt has more keys than a block
TOKENS = 8
WAIT = 300  # seconds to wait for a server that starts on a busy machine
CLOSE = 0.02  # largest allowed difference of log probabilities; for few rows, stock llama.cpp sums the rows of V in f16


def documented_options():
    """Returns the options of the page's command, between `llama-server` and `...`."""
    return re.search(r"GGML_BACKEND_PATH=\S+ llama-server (.*) \.\.\.$", PAGE.read_text(), re.M)[1].split()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """A running server, and its log."""

    def __init__(self, folder, model, options, **environment):
        self.port, self.path = free_port(), folder / "log"
        self.log = open(self.path, "w", encoding="utf-8")
        self.process = subprocess.Popen(
            [builds.llama_server(), "--model", model, "--host", "127.0.0.1", "--port", str(self.port), "--ctx-size",
             "2048", "--threads", "2", "--log-verbosity", "5", *options],
            env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "GGML_SCHED_DEBUG": "1", **environment},
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT)
        end = time.monotonic() + WAIT
        while not self.answers("health"):
            if self.process.poll() is not None or time.monotonic() > end:
                self.end()
                sys.exit(f"server.py: llama-server did not start\n{self.said()[-3000:]}")
            time.sleep(0.2)

    def answers(self, what):
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            return self.ask(what)
        return None

    def ask(self, what, **request):
        data = json.dumps(request).encode() if request else None
        head = {"Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{self.port}/{what}", data, head),
                                    timeout=WAIT) as answer:
            return json.load(answer)

    def said(self):
        return self.path.read_text(encoding="utf-8", errors="replace")

    def end(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()


def completion(folder, model, options, **environment):
    """Starts a server and lets it complete the prompt. Returns the answer and the log."""
    server = Server(folder, model, options, **environment)
    try:
        answer = server.ask("completion", prompt=PROMPT, n_predict=TOKENS, temperature=0, ignore_eos=True, n_probs=20,
                            return_tokens=True)
    finally:
        server.end()
    return answer, server.said()


def difference(answer, other):
    """Returns the largest difference of log probabilities for the first token, over the candidate tokens that both
    answers list. Returns infinity if there are fewer than 10 such tokens."""
    first, second = ({row["id"]: row["logprob"] for row in a["completion_probabilities"][0]["top_logprobs"]}
                     for a in (answer, other))
    both = first.keys() & second.keys()
    return max(abs(first[i] - second[i]) for i in both) if len(both) >= 10 else float("inf")


def check(number, name, ok, said):
    print(("" if ok else said + "\n") + f"{'ok' if ok else 'not ok'} {number} - server: {name}", flush=True)
    return ok


def main():
    build = Path(sys.argv[1] if len(sys.argv) > 1 else builds.ROOT / "build")
    program = builds.model_program(build, "tests/interop/llamacpp/model_file.cpp")
    library = str(builds.backend(build))
    options = documented_options()
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.gguf"
        status, _, log = builds.output(program, model)
        if status:
            sys.exit(f"server.py: no model\n{log}")
        ours, log = completion(Path(folder), model, options, GGML_BACKEND_PATH=library)
        stock, stock_log = completion(Path(folder), model, options)
    print("1..4")
    ok = check(1, "the documented command computes attention by attnkit",
               "loaded ATTNKIT backend" in log and "SPLIT #0: ATTNKIT" in log and "left to the CPU" not in log,
               log[-3000:])
    ok &= check(2, "no graph is split", "SPLIT #1" not in log, log[-3000:])
    ok &= check(3, "without GGML_BACKEND_PATH, the backend is not used", "ATTNKIT" not in stock_log, stock_log[-3000:])
    ok &= check(4, "the answers with and without the backend agree",
                len(ours["tokens"]) == len(stock["tokens"]) == TOKENS and difference(ours, stock) < CLOSE,
                f"{ours}\n{stock}"[:3000])
    print(f"# server: log probabilities differ by {difference(ours, stock):.2e}, tokens are "
          f"{'the same' if ours['tokens'] == stock['tokens'] else 'different'}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
