#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures models of transformers with attnkit beside "sdpa", or "eager" where a model has no "sdpa": the whole model
over a prompt, one more token after the prompt, and the attention alone. The two implementations take turns in one
process, on one thread. A figure with an x is the time of the other implementation divided by the time of attnkit, as
the median over the turns. The last figure of a line is the time of the whole model with attnkit in milliseconds, the
shortest of the turns.

    speed.py [FAMILY ...] [--turns N] [--type float32|bfloat16] [--lengths N ...]
                                                prints a line for each family and length
    speed.py --store FAMILY ...                 also puts each result into bench/results/transformers.json
    speed.py --write                            writes a table of these results into docs/transformers.md

Only decoders have a figure for one more token. "Attention" is the attention function that a model gets from
transformers, with the arguments that the model passes to the function in a run. Falcon, Bloom and MPT do not use this
function. For these families "attention" is the whole attention module, with its projections.
"""

import argparse
import json
import re
import statistics
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
STORE = ROOT / "bench" / "results" / "transformers.json"
PAGE = ROOT / "docs" / "transformers.md"
LENGTHS = (512, 2048)
BEGIN, END = "<!-- by tests/interop/transformers/speed.py --write -->", "<!-- end -->"


class Recorder:
    """Keeps the calls of a model's attention, so that they can be made again."""

    def __init__(self, model, implementation, bypasses):
        self.model, self.implementation, self.bypasses, self.calls = model, implementation, bypasses, []

    def wrap(self, function):
        def recorded(*arguments, **keywords):
            self.calls.append((function, arguments, keywords))
            return function(*arguments, **keywords)
        return recorded

    def record_modules(self, run):
        modules = [module for module in self.model.modules()
                   if re.fullmatch(r"(Falcon|Bloom|Mpt)Attention", type(module).__name__)]
        for module in modules:
            module.forward = self.wrap(module.forward)
        run()
        for module in modules:
            del module.forward

    def record_functions(self, run):
        from transformers import AttentionInterface
        mapping, name = AttentionInterface._global_mapping, self.implementation
        if name == "eager":
            mapping, name = vars(sys.modules[type(self.model).__module__]), "eager_attention_forward"
        theirs = mapping[name]
        mapping[name] = self.wrap(theirs)
        try:
            run()
        finally:
            mapping[name] = theirs

    def record(self, run):
        (self.record_modules if self.bypasses else self.record_functions)(run)
        assert self.calls, f"{self.implementation}: no attention was recorded"
        return self.repeat

    def repeat(self):
        """Makes the calls again. As in a run of the model, each turn has new tensors of bias, and calls that shared a
        tensor of bias share the new one."""
        biases = {id(bias): bias.detach() for bias in (keywords.get("position_bias") for _, _, keywords in self.calls)
                  if bias is not None}
        for function, arguments, keywords in self.calls:
            if keywords.get("position_bias") is not None:
                keywords = dict(keywords, position_bias=biases[id(keywords["position_bias"])])
            function(*arguments, **keywords)


def quotients(theirs, ours, turns):
    """Calls both functions in each turn. Returns the median over the turns of the time of theirs divided by the time of
    ours, and the shortest time of each function in milliseconds."""
    times = {theirs: [], ours: []}
    for turn in range(turns + 1):
        for function in (theirs, ours) if turn % 2 else (ours, theirs):
            began = time.perf_counter()
            function()
            times[function].append((time.perf_counter() - began) * 1e3)
    pairs = list(zip(times[theirs][1:], times[ours][1:]))  # the first turn fills caches
    return {"quotient": statistics.median(a / b for a, b in pairs), "theirs": min(a for a, _ in pairs),
            "ours": min(b for _, b in pairs)}


def models_of(family, length, dtype):
    """Returns the name of the implementation that attnkit is compared with, the model with this implementation, and the
    model with attnkit."""
    from families import model_of
    changes = {"max_source_positions": length} if family == "Whisper" else {}
    ours = model_of(family, "attnkit", "large", **changes).to(dtype)
    for name in ("sdpa", "eager"):
        try:
            return name, model_of(family, name, "large", **changes).to(dtype), ours
        except ValueError:  # "does not support an attention implementation through ...scaled_dot_product_attention"
            continue
    raise AssertionError(family)


def prompt(family, length, dtype):
    import torch
    from families import inputs_of
    inputs = inputs_of(family, 1, length, size="large")
    if family == "Whisper":  # the decoder gets a text of 128 tokens
        inputs["input_features"] = torch.randn(1, 80, 2 * length).to(dtype)
        inputs["decoder_input_ids"] = inputs["decoder_input_ids"][:, :128]
    return dict(inputs, use_cache=False) if "encoder" not in kind_of(family) else inputs


def kind_of(family):
    from families import FAMILIES
    return FAMILIES[family]["kind"]


def one_more_token(model, inputs):
    """Returns a function that decodes one more token after a prompt. The cache grows by a token in each call."""
    ids = inputs["input_ids"]
    done = model(input_ids=ids, use_cache=True)
    cache = done.past_key_values

    def step():
        model(input_ids=ids[:, :1], past_key_values=cache, use_cache=True)
    return step


def measure(family, length, turns, dtype):
    from families import BYPASSING
    other, theirs, ours = models_of(family, length, dtype)
    inputs = prompt(family, length, dtype)
    whole = quotients(lambda: theirs(**inputs), lambda: ours(**inputs), turns)
    parts = [Recorder(model, name, family in BYPASSING).record(lambda model=model: model(**inputs))
             for model, name in ((theirs, other), (ours, "attnkit"))]
    result = {"family": family, "length": length, "other": other, "whole": whole,
              "attention": quotients(*parts, turns)}
    if kind_of(family) == "decoder":
        steps = [one_more_token(model, inputs) for model in (theirs, ours)]
        result["token"] = quotients(*steps, 10 * turns)
    return result


def row(one):
    cells = [one["family"], str(one["length"]), one["other"]]
    for name in ("attention", "whole", "token"):
        cells.append(f"{one[name]['quotient']:.2f}x" if name in one else "")
    cells.append(f"{one['whole']['ours']:.0f}")
    return "| " + " | ".join(cells) + " |"


def cpu():
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    name = re.search(r"^model name\s*: (.*)$", text, re.M)
    return re.sub(r"\s+", " ", name[1]).replace("Processor", "").strip() if name else "an unknown CPU"


def write():
    import families
    stored = json.loads(STORE.read_text())
    lines = [BEGIN, "", "| family | tokens | beside | attention | whole model | one more token | whole model, ms |",
             "| --- | ---: | --- | ---: | ---: | ---: | ---: |"]
    order = list(families.FAMILIES)
    rows = sorted(stored["rows"], key=lambda one: (order.index(one["family"]), one["length"]))
    lines += [row(one) for one in rows]
    lines += ["", "A factor is the speed with attnkit, divided by the speed with the implementation in the column "
              "`beside`. The models have\ntwo or three layers and compute in float32, on one thread of "
              f"{stored['cpu']}.", "", END]
    before, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(before + "\n".join(lines) + rest.split(END)[1])


def store(one):
    """Stores a measurement, and removes an older one of the same family and length."""
    old = json.loads(STORE.read_text())["rows"] if STORE.exists() else []
    kept = [other for other in old if (other["family"], other["length"]) != (one["family"], one["length"])]
    STORE.write_text(json.dumps({"cpu": cpu(), "rows": [*kept, one]}, indent=1) + "\n")


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    arguments.add_argument("families", nargs="*")
    arguments.add_argument("--turns", type=int, default=5)
    arguments.add_argument("--type", default="float32", choices=("float32", "bfloat16"))
    arguments.add_argument("--lengths", type=int, nargs="*", default=LENGTHS)
    arguments.add_argument("--store", action="store_true")
    arguments.add_argument("--write", action="store_true")
    options = arguments.parse_args()
    if options.write:
        return write()
    import attnkit.transformers
    import families
    import torch
    attnkit.transformers.register()
    torch.set_num_threads(1)
    with torch.no_grad():
        for family in options.families or families.FAMILIES:
            for length in options.lengths:
                one = measure(family, length, options.turns, getattr(torch, options.type))
                print("# speed: " + row(one), flush=True)
                if options.store:
                    store(one)


if __name__ == "__main__":
    main()
