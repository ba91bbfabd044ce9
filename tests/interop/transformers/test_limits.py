# SPDX-License-Identifier: Apache-2.0
"""Tests what a caller may ask of a model besides a plain run: masks of the caller, gradients, torch.compile. A request
that attnkit does not support is refused by an error that names the request."""

import subprocess
import sys
import unittest

import attnkit.torch
import attnkit.transformers
import torch
import transformers
from attnkit.transformers._attention import attend
from families import inputs_of, logits_of, model_of
from float64 import in_float64
from torch.utils._python_dispatch import TorchDispatchMode

HIDDEN = "import sys; sys.modules['transformers'] = None\nimport attnkit.transformers"
OLDER = "import transformers; transformers.__version__ = '5.9.1'\nimport attnkit.transformers"


def loss_and_gradients(model, inputs):
    labels = inputs["input_ids"]
    kept = inputs.get("attention_mask")
    if kept is not None:  # tokens of padding have no part in the loss, and predict no token
        labels = labels.masked_fill((kept == 0) | (kept.roll(1, dims=1) == 0), -100)
    model.zero_grad()
    loss = model(**inputs, labels=labels).loss
    loss.backward()
    return [loss.detach()] + [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


class Ops(TorchDispatchMode):
    """Notes the names of all ops that run."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        self.names.append(function.name().split(".")[0])
        return function(*arguments, **(keywords or {}))


class Registered(unittest.TestCase):
    def setUp(self):
        attnkit.transformers.register()
        self.addCleanup(attnkit.transformers.restore)


class Served(Registered):
    def assert_as_eager(self, family, inputs, **changes):
        before = attnkit.torch.calls()
        ours = logits_of(model_of(family, "attnkit", **changes), inputs)
        self.assertGreater(attnkit.torch.calls(), before)
        theirs = logits_of(model_of(family, "eager", **changes), inputs)
        torch.testing.assert_close(ours, theirs, atol=3e-5, rtol=0)

    def test_masks_of_the_caller(self):
        """A mask [batch, 1, rows, keys] of numbers gives the logits of eager attention. A mask of bools gives nearly
        the same logits."""
        inputs = inputs_of("Llama")
        sees = torch.rand(2, 1, 48, 48, generator=torch.Generator().manual_seed(5)) < 0.7
        sees |= torch.eye(48, dtype=torch.bool)
        numbers = torch.where(sees, 0.0, torch.finfo(torch.float32).min)
        self.assert_as_eager("Llama", dict(inputs, attention_mask=numbers))
        model = model_of("Llama", "attnkit")
        with torch.no_grad():
            by_bools = model(**inputs, attention_mask=sees).logits
            torch.testing.assert_close(by_bools, model(**inputs, attention_mask=numbers).logits, atol=3e-5, rtol=0)

    def test_alibi_of_falcon(self):
        """With ALiBi, Falcon's "eager" adds the biases twice. attnkit computes what "sdpa" computes."""
        for padded in (False, True):
            inputs = inputs_of("Falcon", padded=padded)
            ours, theirs = (logits_of(model_of("Falcon", name, alibi=True), inputs) for name in ("attnkit", "sdpa"))
            torch.testing.assert_close(ours, theirs, atol=3e-5, rtol=0)
        self.assertGreater((ours - logits_of(model_of("Falcon", "attnkit"), inputs)).abs().max(), 0.1)

    def test_other_forms_of_falcon(self):
        for changes in ({"new_decoder_architecture": False, "multi_query": True},
                        {"new_decoder_architecture": False, "multi_query": False, "num_kv_heads": 4}):
            self.assert_as_eager("Falcon", inputs_of("Falcon", padded=True), **changes)

    def test_cache_of_falcon(self):
        """With attnkit, the cache has each KV head once. With "sdpa", the cache has a copy of a KV head for each of its
        query heads."""
        for name, heads in (("sdpa", 4), ("attnkit", 2)):
            with torch.no_grad():
                cache = model_of("Falcon", name)(**inputs_of("Falcon"), use_cache=True).past_key_values
            self.assertEqual(cache.layers[0].keys.shape[1], heads)

    def test_heads_of_mpt_and_bloom(self):
        """Tests the biases for other numbers of heads: 8 and 1."""
        self.assert_as_eager("MPT", inputs_of("MPT", padded=True), n_heads=8)
        self.assert_as_eager("Bloom", inputs_of("Bloom", padded=True), n_head=1)

    def test_products_of_bf16(self):
        """Each setting of register() gives logits of its own, which are near the default's. With products of bf16, a
        model in another type and a model with gradients are refused."""
        inputs, results = inputs_of("Llama", padded=True), []
        for options in ({}, {"bf16_products": True}, {"bf16_products": True, "short_weights": True}):
            attnkit.transformers.register(**options)
            results.append(logits_of(model_of("Llama", "attnkit").bfloat16(), inputs).float())
            self.assertLess((results[-1] - results[0]).norm(), 0.02 * results[0].norm())
            self.assertFalse(any(torch.equal(results[-1], other) for other in results[:-1]))
        with self.assertRaisesRegex(RuntimeError, "ATTNKIT_BF16_PRODUCTS, but q.type is 0"):
            logits_of(model_of("Llama", "attnkit"), inputs)
        with self.assertRaisesRegex(RuntimeError, "no gradient with bf16_products"):
            loss_and_gradients(model_of("Llama", "attnkit").bfloat16(), inputs)
        attnkit.transformers.register()
        self.assertTrue(torch.equal(logits_of(model_of("Llama", "attnkit").bfloat16(), inputs).float(), results[0]))

    def test_gradients(self):
        for family in ("Llama", "Qwen3", "BERT", "Falcon"):
            for padded in (False, True):
                inputs = inputs_of(family, padded=padded)
                ours = loss_and_gradients(model_of(family, "attnkit"), inputs)
                theirs = loss_and_gradients(model_of(family, "eager"), inputs)
                exact = in_float64(model_of(family, "eager"), loss_and_gradients, inputs)
                for one, other, right in zip(ours, theirs, exact):
                    error, allowed = (one - right).norm(), (other - right).norm()
                    self.assertLessEqual(error, 4 * allowed + 1e-6 * right.norm(), family)

    def test_results_are_not_copied(self):
        """The result has the strides that the next layer reads, without a copy. q has the strides of [batch, heads,
        rows, elements], as in Whisper. In the second turn, rows of v are shorter than rows of q, as in DeepSeek."""
        for width in (16, 8):
            q, k, v = torch.randn(2, 4, 6, 16), torch.randn(2, 4, 9, 16), torch.randn(2, 4, 9, width)
            with torch.no_grad(), Ops() as ops:
                out, _ = attend(torch.nn.Module(), q, k, v, None, is_causal=False)
            self.assertEqual(ops.names, ["attnkit::attention", "aten::transpose"])
            self.assertEqual(out.shape, (2, 6, 4, width))
            self.assertTrue(out.is_contiguous())

    def test_bias_is_copied_once(self):
        """A bias whose rows are not contiguous, as in T5, is copied once for all layers, and again after it has
        changed."""
        q, bias = torch.randn(1, 4, 6, 16), torch.randn(6, 6, 4).permute(2, 0, 1)[None]
        copies = []
        with torch.no_grad():
            for turn in range(3):
                if turn == 2:
                    bias.mul_(3)
                with Ops() as ops:
                    out, _ = attend(torch.nn.Module(), q, q, q, None, is_causal=False, position_bias=bias)
                copies.append(ops.names.count("aten::clone"))
                wanted, _ = attend(torch.nn.Module(), q, q, q, None, is_causal=False, position_bias=bias.contiguous())
                self.assertTrue(torch.equal(out, wanted))
        self.assertEqual(copies, [1, 0, 1])
        bias = torch.randn(6, 6, 4).permute(2, 0, 1)[None]
        with torch.inference_mode():
            attend(torch.nn.Module(), q, q, q, None, is_causal=False, position_bias=bias)
        with_gradient = q.clone().requires_grad_()
        attend(torch.nn.Module(), with_gradient, q, q, None, is_causal=False, position_bias=bias)[0].sum().backward()
        self.assertIsNotNone(with_gradient.grad)

    def test_set_and_restore(self):
        inputs, model = inputs_of("Llama"), model_of("Llama", "eager")
        theirs = logits_of(model, inputs)
        model.set_attn_implementation("attnkit")
        self.assertFalse(torch.equal(logits_of(model, inputs), theirs))
        model.set_attn_implementation("eager")
        self.assertTrue(torch.equal(logits_of(model, inputs), theirs))

    def test_compile(self):
        for family in ("Llama", "Gemma2"):
            inputs = dict(inputs_of(family, padded=True), use_cache=False)
            model = model_of(family, "attnkit")
            plain = logits_of(model, inputs)
            compiled = torch.compile(model, fullgraph=True)
            torch.testing.assert_close(logits_of(compiled, inputs), plain, atol=3e-5, rtol=0)

    def test_saved_models_do_not_name_attnkit(self):
        self.assertNotIn("attnkit", model_of("Llama", "attnkit").config.to_json_string())


class Refused(Registered):
    def test_dropout(self):
        model = model_of("Llama", "attnkit", attention_dropout=0.1).train()
        with self.assertRaisesRegex(NotImplementedError, r'dropout \(0.1\). Train with attn_implementation="sdpa"'):
            model(**inputs_of("Llama"))

    def test_weights(self):
        for family in ("Llama", "Whisper", "Falcon", "Bloom", "MPT"):
            with self.subTest(family=family), self.assertRaisesRegex(ValueError, "output_attentions"):
                model_of(family, "attnkit")(**inputs_of(family), output_attentions=True)

    def test_float64(self):
        with torch.no_grad(), self.assertRaisesRegex(RuntimeError, "attnkit: .*float"):
            model_of("Llama", "attnkit").double()(**inputs_of("Llama"))

    def test_missing_gradients(self):
        for family, what in (("Gemma2", "softcap"), ("GPT-OSS", "sinks"), ("DeepSeek-V2", "value_dim"), ("T5", "bias")):
            with self.subTest(family=family), self.assertRaisesRegex(RuntimeError, f"no gradient with .*{what}"):
                model_of(family, "attnkit")(**inputs_of(family))

    def test_models_that_bypass_the_interface(self):
        config = transformers.RemBertConfig(vocab_size=64, hidden_size=32, num_hidden_layers=1, num_attention_heads=2)
        config._attn_implementation = "attnkit"
        with self.assertRaisesRegex(ValueError, "RemBert.* computes attention by itself"):
            transformers.RemBertForMaskedLM(config)

    def test_models_that_cannot_be_changed(self):
        for family in ("Falcon", "Bloom", "MPT"):
            with self.subTest(family=family), self.assertRaisesRegex(ValueError, "when the model is made"):
                model_of(family, "eager").set_attn_implementation("attnkit")

    def test_lengths_without_positions(self):
        """Packed sequences are refused if their ends are given only as cu_seq_lens_q and cu_seq_lens_k, which are
        arguments for flash attention."""
        ends = torch.tensor([0, 20, 48], dtype=torch.int32)
        with torch.no_grad(), self.assertRaisesRegex(ValueError, "cu_seq_lens_q"):
            model_of("Llama", "attnkit")(**inputs_of("Llama", batch=1), cu_seq_lens_q=ends, cu_seq_lens_k=ends)

    def test_continuous_batching(self):
        model = model_of("Llama", "attnkit")
        with self.assertRaisesRegex(ValueError, "attnkit is not supported for continuous batching"):
            model.generate_batch(inputs=[[5, 6, 7]])

    def test_after_restore(self):
        model = model_of("Llama", "attnkit")
        attnkit.transformers.restore()
        self.assertFalse(attnkit.transformers.is_registered())
        with self.assertRaisesRegex(KeyError, "attnkit"):
            model(**inputs_of("Llama"))
        with self.assertRaisesRegex(ValueError, "not supported"):
            model_of("Llama", "attnkit")
        for family in ("Falcon", "Bloom", "MPT"):
            before = attnkit.torch.calls()
            logits_of(model_of(family, "eager"), inputs_of(family))
            self.assertEqual(attnkit.torch.calls(), before)

    def test_without_transformers(self):
        for program, text in ((HIDDEN, "needs transformers: pip install transformers"),
                              (OLDER, "needs transformers 5.24 or newer; this is 5.9.1")):
            done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
            self.assertIn("ImportError: attnkit.transformers " + text, done.stderr)


if __name__ == "__main__":
    unittest.main()
