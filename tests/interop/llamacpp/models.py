#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs whole models with random weights on a stock llama.cpp, with the backend for ggml and without it. The script
measures the error of the logits against the logits with an f32 cache, and the perplexity of a text of bytes. With the
backend, the error must be about as small as without the backend. The script also checks that the logits have the same
bits on 1 to 3 threads and with ubatches of 1, 64 and 512. In stock builds, llamafile's tiles compute several rows at
once, and a row then has other bits than if the row is computed alone. So the bits with a ubatch of 1 are compared with
the bits with larger ubatches in a build without llamafile.

    tests/interop/llamacpp/models.py [BUILD] [MODEL ...]     prints TAP

The text is the first bytes of docs/semantics.md. The model is given the tokens of the text, not its own predictions
(teacher forcing). tools/llamacpp/random_model.cpp makes the models. If the cells of a cache are reused (a sliding
window without swa_full), the cell of a key depends on the ubatch. The order of attnkit's sums then depends on the
ubatch, too. For these caches the script requires equal bits on 1 and 3 threads. Whether other ubatches give the same
bits is only printed."""

import array
import math
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools" / "llamacpp"))

import builds  # noqa: E402

TEXT = builds.ROOT / "docs" / "semantics.md"
TOKENS = 2000
VOCABULARY = 256
MODELS = ("llama", "qwen3", "gemma2", "gemma3", "gpt-oss", "mpt", "deepseek2")
WITH_EXPERTS = ("gpt-oss", "deepseek2")
WITH_WINDOW = ("gemma2", "gemma3", "gpt-oss")
# The largest allowed ratio of attnkit's error to the smaller error of stock llama.cpp, with flash attention off or on.
# These errors come from the f16 cache, and differ by chance.
SLACK = 1.01


class Model:
    """A model. Each run is a new process."""

    def __init__(self, name, program, library, folder):
        self.name, self.program, self.library, self.folder = name, program, library, folder

    def run(self, ours, flash, kv, threads=1, ubatch=512, *more, plain=False):
        """Runs the model and returns the logits. With the backend, no attention may be left to the CPU backend."""
        out = self.folder / "logits"
        environment = {"GGML_BACKEND_PATH": str(self.library)} if ours else {}
        environment["LD_LIBRARY_PATH"] = str(builds.libraries(plain))
        status, _, log = builds.output(self.program, self.name, TEXT, out, TOKENS, threads, ubatch, flash, kv,
                                       *more, **environment)
        if status != 0 or ours != ("loaded ATTNKIT backend" in log) or "left to the CPU" in log:
            sys.exit(f"models.py: {self.name} failed\n{log}")
        logits = array.array("f")
        logits.frombytes(out.read_bytes())
        return logits


def error(got, wanted):
    """Returns the root mean square of the differences, divided by the standard deviation of the wanted logits."""
    mean = math.fsum(wanted) / len(wanted)
    difference = math.fsum((a - b) ** 2 for a, b in zip(got, wanted))
    return math.sqrt(difference / math.fsum((b - mean) ** 2 for b in wanted))


def median_error(got, wanted):
    """Returns the median of the tokens' errors. The error of a token is the root mean square of the differences of its
    logits, divided by the standard deviation of the wanted logits of all tokens."""
    tokens = range(0, len(wanted), VOCABULARY)
    errors = sorted(math.fsum((a - b) ** 2 for a, b in zip(got[i:i + VOCABULARY], wanted[i:i + VOCABULARY]))
                    for i in tokens)
    mean = math.fsum(wanted) / len(wanted)
    variance = math.fsum((b - mean) ** 2 for b in wanted) / len(wanted)
    return math.sqrt(errors[len(errors) // 2] / VOCABULARY / variance)


def perplexity(logits):
    """Returns the perplexity of the text. The logits predict each byte but the first from the bytes before it."""
    text, loss = TEXT.read_bytes()[:TOKENS], 0.0
    for i in range(TOKENS - 1):
        row = logits[i * VOCABULARY:(i + 1) * VOCABULARY]
        largest = max(row)
        loss += largest + math.log(math.fsum(math.exp(x - largest) for x in row)) - row[text[i + 1]]
    return math.exp(loss / (TOKENS - 1))


class Report:
    """Prints TAP, with a table in its comments."""

    def __init__(self, count):
        print(f"1..{count}", flush=True)
        self.number, self.failed = 0, 0

    def check(self, name, ok):
        self.number += 1
        self.failed += not ok
        print(f"{'ok' if ok else 'not ok'} {self.number} - {name}", flush=True)


def compare_errors(model, report, ubatch):
    """Compares the error of attnkit, for an f16 cache, with the errors of stock llama.cpp with flash attention (fa) off
    and on. Prints the perplexities, too. Returns the logits of stock llama.cpp with an f32 cache."""
    reference = model.run(False, 0, "f32", 1, ubatch)
    runs = [model.run(*how, "f16", 1, ubatch) for how in ((False, 0), (False, 1), (True, 1))]
    off, on, ours = (error(logits, reference) for logits in runs)
    words = ", ".join(f"{name} {e:.3e} ({perplexity(logits):.3f})" for name, e, logits in
                      zip(("fa off", "fa on", "attnkit"), (off, on, ours), runs))
    print(f"# {model.name}: f16, ubatch {ubatch}: error (perplexity): {words}, f32 ({perplexity(reference):.3f})")
    report.check(f"{model.name}: f16, ubatch {ubatch}: as near to f32 as stock with fa off or on, whichever is nearer",
                 ours <= SLACK * min(off, on))
    return reference


def compare_q8_0(model, report, reference):
    """Compares the error of attnkit, for a q8_0 cache, with the error of stock llama.cpp. Stock llama.cpp supports a
    quantised V only with fa on. In a model with experts, a q8_0 cache sends some tokens to other experts than an f32
    cache does. Chance decides which tokens, and their errors are 30 times as large as other errors. For these models
    only the median over the tokens is compared."""
    stock, own = (model.run(is_ours, 1, "q8_0") for is_ours in (False, True))
    on, ours = (error(logits, reference) for logits in (stock, own))
    median_on, median_ours = (median_error(logits, reference) for logits in (stock, own))
    print(f"# {model.name}: q8_0: error (median): fa on {on:.3e} ({median_on:.3e}), "
          f"attnkit {ours:.3e} ({median_ours:.3e})")
    report.check(f"{model.name}: q8_0: as near to f32 as stock",
                 median_ours <= median_on and (ours <= on or model.name in WITH_EXPERTS))


def compare_bits(model, report):
    def runs(*settings, **more):
        return [model.run(True, 1, "f16", *setting, **more) for setting in settings]
    several = runs((1, 512), (2, 512), (3, 512), (1, 64), (2, 64), (3, 64))
    single = runs((1, 1), (3, 1)) + runs((1, 1), (1, 64), (1, 512), plain=True)
    report.check(f"{model.name}: the same bits on 1 to 3 threads, in ubatch 64 and 512", several.count(several[0]) == 6)
    report.check(f"{model.name}: without llamafile, the same bits in ubatch 1, 64 and 512",
                 single.count(single[0]) == 5)
    if model.name in WITH_WINDOW:
        ring = runs((1, 512, "cells-go-round"), (3, 512, "cells-go-round"), (1, 64, "cells-go-round"))
        report.check(f"{model.name}: cells go round: the same bits on any threads", ring[0] == ring[1])
        print(f"# {model.name}: cells go round: the bits of ubatch 512 "
              f"{'equal' if ring[0] == ring[2] else 'differ from'} the bits of ubatch 64, and "
              f"{'equal' if ring[0] == several[0] else 'differ from'} the bits of a cache that keeps all cells")


def main():
    build, *models = sys.argv[1:] or [builds.ROOT / "build"]
    models = models or MODELS
    program = builds.model_program(Path(build), "tests/interop/llamacpp/model.cpp")
    library = builds.backend(Path(build))
    report = Report(5 * len(models) + len(set(models) & set(WITH_WINDOW)))
    with tempfile.TemporaryDirectory() as folder:
        for name in models:
            model = Model(name, program, library, Path(folder))
            compare_q8_0(model, report, compare_errors(model, report, 512))
            compare_errors(model, report, 1)
            compare_bits(model, report)
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
