# SPDX-License-Identifier: Apache-2.0
"""Tests decoding over 64 steps in float32: greedy for every family that generates text, and by beams for three
families. Decoders also run with left padding, and most decoders with a cache of fixed size. attnkit must give the same
tokens as eager attention."""

import unittest

import attnkit.torch
import attnkit.transformers
import torch
from families import FAMILIES, config_of, inputs_of, is_decoder, model_of

STEPS = 64
WITHOUT_STATIC = ("Bloom", "Falcon", "MPT")  # transformers' own caches of fixed size do not serve these models


def generate(family, implementation, padded=False, **options):
    inputs = inputs_of(family, padded=padded)
    inputs.pop("decoder_input_ids", None)
    if family == "Whisper":
        options["language"] = None
    with torch.no_grad():
        done = model_of(family, implementation).generate(
            **inputs, max_new_tokens=STEPS, min_new_tokens=STEPS, do_sample=False, return_dict_in_generate=True,
            output_logits=True, **options)
    return done.sequences, torch.stack(done.logits)


class Generate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        attnkit.transformers.register()

    @classmethod
    def tearDownClass(cls):
        attnkit.transformers.restore()

    def compare(self, family, what, **options):
        """Checks the tokens. Returns the smallest difference between the two best logits of a step, and the largest
        difference between a logit of eager attention and the same logit of attnkit."""
        theirs, logits = generate(family, "eager", **options)
        before = attnkit.torch.calls()
        ours, found = generate(family, "attnkit", **options)
        calls = attnkit.torch.calls() - before
        best = logits.topk(2, dim=-1).values
        apart, differ = (best[..., 0] - best[..., 1]).min().item(), (found - logits).abs().max().item()
        with self.subTest(family=family, what=what, apart=apart, differ=differ):
            self.assertEqual(theirs.tolist(), ours.tolist())
            self.assertEqual(len(found), STEPS)
            self.assertGreaterEqual(calls, STEPS * config_of(family).num_hidden_layers)
        return apart, differ

    def test_greedy(self):
        for family, entry in FAMILIES.items():
            if entry["kind"] != "encoder":
                apart, differ = self.compare(family, "greedy")
                print(f"\n# families: {family:<11} {STEPS} greedy tokens equal: two best logits {apart:.1e} apart, "
                      f"eager and attnkit differ by {differ:.1e}")

    def test_left_padded(self):
        for family in filter(is_decoder, FAMILIES):
            self.compare(family, "left-padded", padded=True)

    def test_static_cache(self):
        for family in filter(is_decoder, FAMILIES):
            if family not in WITHOUT_STATIC:
                self.compare(family, "static", cache_implementation="static")
                self.compare(family, "static, left-padded", cache_implementation="static", padded=True)

    def test_beams(self):
        for family in ("Llama", "Gemma3", "T5"):
            self.compare(family, "beams", num_beams=3)


if __name__ == "__main__":
    unittest.main()
