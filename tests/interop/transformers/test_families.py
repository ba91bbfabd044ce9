# SPDX-License-Identifier: Apache-2.0
"""Compares the logits of a model of every family in families.json, by eager attention and by attnkit, with the logits
of the same model in float64."""

import unittest

import attnkit.torch
import attnkit.transformers
import torch
from families import FAMILIES, config_of, inputs_of, left_padding, logits_of, model_of, packed_inputs, packs
from float64 import in_float64

SEEDS = range(1, 7)  # seeds of the weights; the errors in bfloat16 are averaged over these seeds
CHUNKS = (30, 1, 1, 12, 1, 3)  # 48 tokens, in parts with a cache


def rms(difference):
    return difference.double().square().mean().sqrt().item()


def errors(logits, exact):
    return rms(logits - exact), (logits - exact).abs().max().item()


def by_chunks(model, inputs):
    """Returns the logits of a decoder that takes its tokens in parts: prefill, continued prefill and decoding. Leaves
    out the logits of padding."""
    cache, kept, parts, start = None, inputs.get("attention_mask"), [], 0
    with torch.no_grad():
        for length in CHUNKS:
            end = start + length
            mask = {} if kept is None else {"attention_mask": kept[:, :end]}
            done = model(input_ids=inputs["input_ids"][:, start:end], past_key_values=cache, use_cache=True, **mask)
            cache, start = done.past_key_values, end
            parts.append(done.logits)
    logits = torch.cat(parts, dim=1)
    return logits if kept is None else logits[kept.bool()]


class Families(unittest.TestCase):
    """All models come from families.json, with random weights."""

    @classmethod
    def setUpClass(cls):
        attnkit.transformers.register()

    @classmethod
    def tearDownClass(cls):
        attnkit.transformers.restore()

    def compare(self, family, what, inputs, call=logits_of):
        """Checks that attnkit's error is at most twice the error of eager attention, both as root mean square and as
        maximum. Returns the root mean squares of eager attention and of attnkit, divided by the standard
        deviation of the logits in float64."""
        exact = in_float64(model_of(family, "eager"), call, inputs)
        eager = errors(call(model_of(family, "eager"), inputs), exact)
        ours = errors(call(model_of(family, "attnkit"), inputs), exact)
        with self.subTest(family=family, what=what, eager=eager, ours=ours):
            self.assertGreater(exact.std().item(), 0.1)
            self.assertLess(eager[0], 1e-4 * exact.std().item())
            self.assertLessEqual(ours[0], 2 * eager[0])
            self.assertLessEqual(ours[1], 2 * eager[1])
        return eager[0] / exact.std().item(), ours[0] / exact.std().item()

    def test_prefill(self):
        for family in FAMILIES:
            eager, ours = self.compare(family, "whole", inputs_of(family))
            padded = self.compare(family, "padded", inputs_of(family, padded=True))
            print(f"\n# families: {family:<11} "
                  f"float32: error / deviation of the logits {ours:.1e} (eager {eager:.1e}), "
                  f"left-padded {padded[1]:.1e} ({padded[0]:.1e})")

    def test_chunks_with_a_cache(self):
        for family, entry in FAMILIES.items():
            if entry["kind"] == "decoder":
                self.compare(family, "chunks", inputs_of(family), by_chunks)
                self.compare(family, "padded chunks", inputs_of(family, padded=True), by_chunks)

    def test_right_padding(self):
        for family, entry in FAMILIES.items():
            if entry["kind"] != "speech":
                inputs = inputs_of(family, batch=3)
                inputs["attention_mask"] = left_padding(3, 48).flip(1)
                self.compare(family, "right", inputs)

    def test_packed(self):
        """Packed sequences have the logits of the sequences alone."""
        lengths = (17, 1, 30, 8)
        for family in filter(packs, FAMILIES):
            inputs, alone = packed_inputs(family, lengths)
            self.compare(family, "packed", inputs)
            model = model_of(family, "attnkit")
            packed = logits_of(model, inputs)
            single = torch.cat([logits_of(model, {"input_ids": one}) for one in alone], dim=1)
            with self.subTest(family=family):
                torch.testing.assert_close(packed, single, atol=1e-4, rtol=0)

    def test_attnkit_computes_every_attention(self):
        for family, entry in FAMILIES.items():
            before = attnkit.torch.calls()
            logits_of(model_of(family, "attnkit"), inputs_of(family))
            layers = config_of(family).num_hidden_layers
            if entry["kind"] in ("speech", "encoder-decoder"):
                layers *= 3  # the encoder, the decoder, and the decoder's attention over the encoder
            with self.subTest(family=family):
                self.assertEqual(attnkit.torch.calls() - before, layers)

    def test_bfloat16(self):
        """attnkit's mean error over several models is not larger than the mean error of eager attention."""
        for family in FAMILIES:
            inputs, eager, ours = inputs_of(family, batch=4), 0, 0
            narrow = {name: value.bfloat16() if value.is_floating_point() else value for name, value in inputs.items()}
            for seed in SEEDS:
                model = model_of(family, "eager", seed=seed).bfloat16()
                theirs = logits_of(model, narrow)
                exact = in_float64(model, logits_of, narrow)
                eager += errors(theirs, exact)[0] / exact.std().item() / len(SEEDS)
                found = logits_of(model_of(family, "attnkit", seed=seed).bfloat16(), narrow)
                ours += errors(found, exact)[0] / exact.std().item() / len(SEEDS)
            print(f"\n# families: {family:<11} "
                  f"bfloat16: error / deviation of the logits {ours:.2e} (eager {eager:.2e})")
            with self.subTest(family=family, eager=eager, ours=ours):
                self.assertLessEqual(ours, eager)


if __name__ == "__main__":
    unittest.main()
