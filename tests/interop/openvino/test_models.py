# SPDX-License-Identifier: Apache-2.0
"""Tests models with the extension for OpenVINO. The extension must compute every attention that it supports, and leave
every other attention to OpenVINO. The results of the encoder and the decoder must agree with float64, and most other
results with OpenVINO. ATTNKIT_OPENVINO_EXTENSION is the path of the extension."""

import os
import re
import tempfile
import unittest
from pathlib import Path

import models
import numpy as np
import onnx
import openvino
from onnx import TensorProto, helper
from openvino import opset13 as op

EXTENSION = os.environ["ATTNKIT_OPENVINO_EXTENSION"]
FLOAT32 = {"INFERENCE_PRECISION_HINT": "f32"}


def drawn(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def types(model):
    return [(node.get_type_name(), node.get_type_info().version_id) for node in model.get_ops()
            if "Attention" in node.get_type_name()]


class Both:
    """A model in a file, compiled with the extension and by OpenVINO alone."""

    def __init__(self, model, **settings):
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "model.xml"
        openvino.save_model(model, self.path, compress_to_fp16=False)
        self.core = openvino.Core()
        self.core.add_extension(EXTENSION)
        self.model = self.core.read_model(self.path)
        self.settings = {**FLOAT32, **settings}
        self.ours = self.compiled(self.core, self.model)
        self.theirs = self.compiled(openvino.Core(), openvino.Core().read_model(self.path))

    def compiled(self, core, model):
        return core.compile_model(model, "CPU", self.settings)

    def infer(self, *inputs):
        return self.ours(list(inputs))[0], self.theirs(list(inputs))[0]


def attention(*shapes, causal=False, kind=np.float32, extra=()):
    """Returns a model of one attention. `extra` are constants: mask and scale."""
    inputs = [op.parameter(list(shape), kind, name) for name, shape in zip("qkv", shapes)]
    return openvino.Model([op.scaled_dot_product_attention(*inputs, *(op.constant(x) for x in extra), causal=causal)],
                          inputs, "attention")


class Models(unittest.TestCase):
    """Tests whole models."""

    def check(self, both, inputs, wanted):
        """Checks that attnkit's error is below 1e-5 of the largest element, and below twice OpenVINO's error plus
        1e-6."""
        ours, theirs = both.infer(*inputs)
        error, their_error = np.abs(ours - wanted).max(), np.abs(theirs - wanted).max()
        self.assertLess(error, 1e-5 * np.abs(wanted).max())
        self.assertLess(error, 2 * their_error + 1e-6)

    def is_replaced(self, both, count):
        self.assertEqual(types(both.model), [("Attention", "attnkit")] * count)
        layers = [node.get_rt_info()["layerType"].value for node in both.ours.get_runtime_model().get_ops()]
        self.assertEqual(sum("ScaledDotProduct" in layer for layer in layers), 0)
        self.assertEqual(layers.count("Reference"), count)

    def test_encoder_with_padding(self):
        both = Both(models.encoder())
        self.is_replaced(both, models.LAYERS)
        for batch, n in ((1, 7), (3, 50), (2, 300)):
            x = drawn(n, batch, n, models.WIDTH)
            mask = np.ones((batch, 1, 1, n), bool)
            mask[0, ..., n // 2 + 1:] = False
            self.check(both, (x, mask), models.encoder_oracle(x, mask))

    def test_encoder_with_a_mask_of_numbers(self):
        both = Both(models.encoder(np.float32))
        self.is_replaced(both, models.LAYERS)
        x = drawn(1, 2, 40, models.WIDTH)
        mask = np.arange(40).reshape(1, 1, 1, -1) < np.array([40, 9]).reshape(2, 1, 1, 1)
        self.check(both, (x, np.where(mask, 0, np.finfo(np.float32).min).astype(np.float32)),
                   models.encoder_oracle(x, mask))

    def test_causal_decoder(self):
        both = Both(models.decoder())
        self.is_replaced(both, models.LAYERS)
        for batch, n in ((1, 1), (2, 33), (1, 700)):
            x = drawn(n, batch, n, models.WIDTH)
            self.check(both, (x,), models.decoder_oracle(x))

    def test_caches_that_are_states(self):
        for with_beams, wanted in ((False, ("Attention", "attnkit")), (True, ("ScaledDotProductAttention", "opset13"))):
            both = Both(models.cached(with_beams))
            self.assertEqual(types(both.model), [wanted])
            ours, theirs = both.ours.create_infer_request(), both.theirs.create_infer_request()
            for n in (9, 1, 1):
                inputs = [drawn(n + i, 1, models.HEADS, n, models.DIM) for i in range(3)]
                inputs += [np.zeros(1, np.int32)] if with_beams else []
                np.testing.assert_allclose(ours.infer(inputs)[0], theirs.infer(inputs)[0], atol=2e-6)

    def test_model_of_onnx(self):
        """ONNX's Attention with KV heads that are shared, and a mask."""
        inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["b", heads, n, 32])
                  for name, heads, n in (("q", 4, "l"), ("k", 2, "s"), ("v", 2, "s"))]
        inputs.append(helper.make_tensor_value_info("mask", TensorProto.BOOL, ["l", "s"]))
        graph = helper.make_graph([helper.make_node("Attention", ["q", "k", "v", "mask"], ["y"])], "one", inputs,
                                  [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["b", 4, "l", 32])])
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
        onnx.checker.check_model(made)
        both = Both(openvino.Core().read_model(made.SerializeToString()))
        self.is_replaced(both, 1)
        q, k, v = drawn(1, 2, 4, 9, 32), drawn(2, 2, 2, 50, 32), drawn(3, 2, 2, 50, 32)
        ours, theirs = both.infer(q, k, v, drawn(4, 9, 50) < 0.5)
        np.testing.assert_allclose(ours, theirs, atol=2e-6)

    def test_threads_and_streams_have_the_same_bits(self):
        x = drawn(1, 2, 300, models.WIDTH)
        results = set()
        for settings in ({"INFERENCE_NUM_THREADS": 1}, {"INFERENCE_NUM_THREADS": 2}, {"NUM_STREAMS": 2}):
            both = Both(models.decoder(), **settings)
            queue = openvino.AsyncInferQueue(both.ours, 4)
            queue.set_callback(lambda request, _: results.add(request.get_output_tensor(0).data.tobytes()))
            for _ in range(12):
                queue.start_async([x])
            queue.wait_all()
        self.assertEqual(len(results), 1)

    def test_a_model_that_was_saved_with_the_operation(self):
        both = Both(models.decoder())
        path = both.path.with_name("ours.xml")
        openvino.save_model(both.model, path, compress_to_fp16=False)
        again = both.core.read_model(path)
        self.assertEqual(types(again), [("Attention", "attnkit")] * models.LAYERS)
        x = drawn(1, 1, 30, models.WIDTH)
        self.assertEqual(both.compiled(both.core, again)([x])[0].tobytes(), both.infer(x)[0].tobytes())

    def test_weights_of_16_bits(self):
        """Models are usually saved with weights of float16, which OpenVINO widens."""
        both = Both(models.decoder())
        path = both.path.with_name("half.xml")
        openvino.save_model(models.decoder(), path)
        model = both.core.read_model(path)
        self.assertEqual(types(model), [("Attention", "attnkit")] * models.LAYERS)
        x = drawn(1, 1, 30, models.WIDTH)
        theirs = both.compiled(openvino.Core(), openvino.Core().read_model(path))([x])[0]
        np.testing.assert_allclose(both.compiled(both.core, model)([x])[0], theirs, atol=1e-4)


class Operation(unittest.TestCase):
    """Tests one attention."""

    def same(self, model, *inputs, atol=2e-6):
        both = Both(model)
        self.assertEqual(types(both.model), [("Attention", "attnkit")])
        ours, theirs = both.infer(*inputs)
        self.assertEqual(ours.shape, theirs.shape)
        np.testing.assert_allclose(ours, theirs, atol=atol)

    def test_dimensions(self):
        q, k, v = drawn(1, 2, 3, 9, 32), drawn(2, 2, 3, 20, 32), drawn(3, 2, 3, 20, 48)
        self.same(attention(q.shape, k.shape, v.shape), q, k, v)
        self.same(attention(q[0].shape, k[0].shape, v[0].shape), q[0], k[0], v[0])
        self.same(attention(q.shape, k.shape, v.shape, causal=True), q, k, v)

    def test_masks(self):
        q, k = drawn(1, 2, 3, 9, 32), drawn(2, 2, 3, 20, 32)
        for shape in ((9, 20), (2, 1, 9, 20), (1, 3, 1, 20), (3, 9, 20), (2, 3, 9, 20)):
            bias = drawn(3, *shape)
            self.same(attention(q.shape, k.shape, k.shape, extra=[bias]), q, k, k)
            seen = bias < 0.5
            seen[..., :1] = True
            self.same(attention(q.shape, k.shape, k.shape, extra=[seen, np.float32(0.3)]), q, k, k)

    def test_16_bits(self):
        """Tensors of float16, and a model that OpenVINO computes in bfloat16."""
        q, k = drawn(1, 2, 3, 9, 32), drawn(2, 2, 3, 20, 32)
        wanted = Both(attention(q.shape, k.shape, k.shape)).infer(q, k, k)[1]
        half = Both(attention(q.shape, k.shape, k.shape, kind=np.float16))
        self.assertEqual(types(half.model), [("Attention", "attnkit")])
        self.assertLess(np.abs(half.infer(*(x.astype(np.float16) for x in (q, k, k)))[0] - wanted).max(), 5e-3)
        rounded = Both(attention(q.shape, k.shape, k.shape), INFERENCE_PRECISION_HINT="bf16").infer(q, k, k)[0]
        self.assertLess(np.abs(rounded - wanted).max(), 5e-2)

    def test_scale_without_a_mask(self):
        q = drawn(1, 2, 3, 9, 32)
        self.same(attention(q.shape, q.shape, q.shape, extra=[np.float32(0), np.float32(-0.3)]), q, q, q)

    def test_mask_of_one_column(self):
        """A mask [.., 1] repeats for all keys, so that a row sees all keys or none."""
        q, seen = drawn(1, 1, 2, 5, 16), np.array([1, 0, 1, 1, 0], bool).reshape(5, 1)
        ours = Both(attention(q.shape, q.shape, q.shape, extra=[seen])).infer(q, q, q)[0]
        whole = Both(attention(q.shape, q.shape, q.shape)).infer(q, q, q)[0]
        self.assertEqual(ours.tobytes(), np.where(seen, whole, np.float32(0)).tobytes())

    def test_constants_are_folded(self):
        q = drawn(1, 1, 2, 5, 16)
        node = op.scaled_dot_product_attention(op.constant(q), op.constant(q), op.constant(q))
        x = op.parameter(q.shape, np.float32, "x")
        both = Both(openvino.Model([op.add(node, x)], [x], "folded"))
        ours, theirs = both.infer(np.zeros_like(q))
        np.testing.assert_allclose(ours, theirs, atol=2e-6)

    def test_left_to_openvino(self):
        five = (2, 2, 3, 9, 32)
        four = (2, 3, 9, 32)
        for model in (attention(five, five, five), attention(four, four, four, kind=np.float64)):
            both = Both(model)
            self.assertEqual(types(both.model), [("ScaledDotProductAttention", "opset13")])

    def test_sizes_that_do_not_fit(self):
        both = Both(attention((-1, -1, -1, 32), (-1, -1, -1, 32), (-1, -1, -1, 32)))
        q, k, v = drawn(1, 1, 2, 5, 32), drawn(2, 1, 2, 7, 32), drawn(2, 1, 2, 8, 32)
        with self.assertRaises(RuntimeError):
            both.ours([q, k, v])
        self.assertTrue(np.isfinite(both.ours([q, k, k])[0]).all())

    def test_error_of_attnkit(self):
        q = drawn(1, 1, 2, 5, 32)
        both = Both(attention(q.shape, q.shape, q.shape, extra=[np.float32(0), np.float32(np.inf)]))
        with self.assertRaisesRegex(RuntimeError, "attnkit: scale"):
            both.ours([q, q, q])


class Page(unittest.TestCase):
    """Tests the lines at the top of docs/openvino.md."""

    def test_lines(self):
        page = Path(__file__).resolve().parents[3] / "docs" / "openvino.md"
        lines = re.search(r"```python\n(.*?)```", page.read_text(), re.S)[1]
        both = Both(models.decoder())
        for said, meant in (("build-openvino/libopenvino-attnkit.so", EXTENSION), ("model.xml", both.path)):
            self.assertIn(f'"{said}"', lines)
            lines = lines.replace(f'"{said}"', repr(str(meant)))
        names = {"openvino": openvino}
        exec(lines, names)
        x = drawn(1, 1, 30, models.WIDTH)
        self.assertEqual(names["model"]([x])[0].tobytes(), both.infer(x)[0].tobytes())


if __name__ == "__main__":
    unittest.main()
