# SPDX-License-Identifier: Apache-2.0
"""Tests the options that change how numbers are multiplied: bf16_products, short_weights and integers. Results have the
bits of the same call by ctypes. A call that cannot have such an option raises an exception. The file also tests
attnkit.enable."""

import ctypes
import threading
import unittest

import attnkit
import ml_dtypes
import numpy as np
from reference import LIBRARY, by_ctypes, drawn, library_attention
# reference.py makes attnkit_structs importable.
from attnkit_structs import BF16_PRODUCTS, BOTTOM_RIGHT, CAUSAL, F32, INTEGERS, MESSAGE_SIZE, Q8_0, SHORT_WEIGHTS
from attnkit_structs import AttentionArgs, Exec, LinearArgs, PackArgs, new, tensor

BF16 = ml_dtypes.bfloat16
B, H, G, L, K, D, E = 2, 4, 2, 20, 700, 64, 48
MODES = (({"bf16_products": True}, BF16_PRODUCTS),
         ({"bf16_products": True, "short_weights": True}, BF16_PRODUCTS | SHORT_WEIGHTS))


def inputs():
    return (drawn(1, B, H, L, D, dtype=BF16), drawn(2, B, G, K, D, dtype=BF16), drawn(3, B, G, K, E, dtype=BF16))


def bits(*arrays):
    """Returns arrays of bfloat16 as arrays of uint16, the form that library_attention takes."""
    return [np.ascontiguousarray(array).view(np.uint16) for array in arrays]


class Products(unittest.TestCase):
    """Tests products of bf16 in groups."""

    def by_library(self, flags):
        return library_attention(*bits(*inputs()), flags=CAUSAL | flags, align=BOTTOM_RIGHT)

    def test_attention_has_the_bits_of_the_library(self):
        q, k, v = inputs()
        results = {attnkit.attention(q, k, v, causal="bottom-right").tobytes()}
        for options, flags in MODES:
            out, lse = attnkit.attention(q, k, v, causal="bottom-right", return_lse=True, threads=2, **options)
            wanted, wanted_lse = self.by_library(flags)
            self.assertEqual(out.tobytes(), wanted.tobytes())
            self.assertEqual(lse.tobytes(), wanted_lse.tobytes())
            results.add(out.tobytes())
        self.assertEqual(len(results), 3)
        plain = attnkit.attention(q, k, v, causal="bottom-right", bf16_products=False)
        self.assertEqual(plain.tobytes(), self.by_library(0)[0].tobytes())

    def test_caches_states_and_packed_sequences(self):
        q, k, v = inputs()
        for options, flags in MODES:
            wanted = self.by_library(flags)[0]
            for paged in (None, 16):
                cache = attnkit.KVCache(B, G, K, D, E, type="bfloat16", paged=paged)
                cache.append(k, v)
                self.assertEqual(cache.attend(q, **options).tobytes(), wanted.tobytes())
                self.assertEqual(cache.attend(q[:, :, -1:], **options).tobytes(), wanted[:, :, -1:].tobytes())
            state = attnkit.State()
            for part in (slice(0, 512), slice(512, K)):
                state.update(q, k[:, :, part], v[:, :, part], causal=True, q_offsets=K - L, **options)
            self.assertEqual(state.result(BF16).tobytes(), wanted.tobytes())
            packed = [x.swapaxes(1, 2).reshape(-1, *x.shape[1:2], x.shape[3]) for x in (q, k, v)]
            out = attnkit.attention_varlen(*packed, [0, L, 2 * L], [0, K, 2 * K], causal="bottom-right", **options)
            self.assertEqual(out.reshape(B, L, H, E).swapaxes(1, 2).tobytes(), wanted.tobytes())

    def test_refuses(self):
        q, k, v = inputs()
        wide = [x.astype(np.float32) for x in (q, k, v)]
        with self.assertRaisesRegex(NotImplementedError, "ATTNKIT_BF16_PRODUCTS.* q.type is 0"):
            attnkit.attention(*wide, bf16_products=True)
        with self.assertRaisesRegex(NotImplementedError, "ATTNKIT_BF16_PRODUCTS"):
            attnkit.attention(q, k, v, bf16_products=True, return_weights=True)
        with self.assertRaisesRegex(ValueError, "ATTNKIT_SHORT_WEIGHTS"):
            attnkit.attention(q, k, v, short_weights=True)
        cache = attnkit.KVCache(B, G, K, D, E, type="bfloat16", tiled=True)
        cache.append(k, v)
        with self.assertRaisesRegex(NotImplementedError, "ATTNKIT_TILED"):
            cache.attend(q, bf16_products=True)
        with self.assertRaisesRegex(ValueError, "ATTNKIT_INTEGERS"):
            cache.attend(q, bf16_products=True, integers=True)
        layer = attnkit.Layer({f"{part}_proj.weight": drawn(4, D, D) for part in "qkvo"}, q_heads=1, kv_heads=1)
        for option in ("bf16_products", "integers"):
            with self.assertRaisesRegex(TypeError, f"no argument {option}"):
                layer(drawn(5, 1, 3, D), **{option: True})


def linear_by_ctypes(x, w, bias, flags):
    """Returns y = x w^T + bias, computed by the library of the build, with w packed as Q8_0."""
    message, size = ctypes.create_string_buffer(MESSAGE_SIZE), ctypes.c_size_t()
    pack = new(PackArgs, out_dim=w.shape[0], in_dim=w.shape[1], w=w, packed_type=Q8_0)
    status = LIBRARY.attnkit_packed_size(ctypes.byref(pack), ctypes.byref(size), message)
    memory = np.zeros(size.value + 64, np.uint8)
    packed = memory[-memory.ctypes.data % 64:][:size.value]
    pack.packed, pack.packed_size = packed.ctypes.data, size.value
    status = status or LIBRARY.attnkit_pack(ctypes.byref(pack), None, message)
    y = np.empty((x.shape[0], w.shape[0]), np.float32)
    args = new(LinearArgs, rows=x.shape[0], in_dim=w.shape[1], out_dim=w.shape[0], x=x, w=tensor(packed, Q8_0),
               y=tensor(y, F32), bias=bias, flags=flags)
    exec = new(Exec)
    status = status or LIBRARY.attnkit_linear_workspace(ctypes.byref(args), ctypes.byref(exec), ctypes.byref(size),
                                                        message)
    workspace = np.empty(size.value, np.uint8)
    exec.workspace, exec.workspace_size = workspace.ctypes.data, size.value
    status = status or LIBRARY.attnkit_linear(ctypes.byref(args), ctypes.byref(exec), message)
    if status:
        raise ValueError(message.value.decode())
    return y


class Integers(unittest.TestCase):
    """Tests products of integers. tests/python/test_cache.py tests caches of other types and layouts."""

    def test_a_cache_has_the_bits_of_the_library(self):
        q, k, v = drawn(1, B, H, L, D), drawn(2, B, G, K, D), drawn(3, B, G, K, D)
        cache = attnkit.KVCache(B, G, K, D, type="q8_0")
        cache.append(k, v)
        stored = [tensor(array, Q8_0) for array in cache._cache[10:12]]
        for flags, integers in ((0, False), (INTEGERS, True)):
            out = np.empty((B, H, L, D), np.float32)
            by_ctypes(new(AttentionArgs, flags=CAUSAL | flags, align=BOTTOM_RIGHT, batch=B, q_heads=H, kv_heads=G,
                          q_len=L, kv_len=K, head_dim=D, value_dim=D, q=q, k=stored[0], v=stored[1], out=out))
            self.assertEqual(cache.attend(q, integers=integers).tobytes(), out.tobytes())

    def test_linear_has_the_bits_of_the_library(self):
        x, w, bias = drawn(1, 9, 96), drawn(2, 40, 96), drawn(3, 40)
        matrix = attnkit.Matrix(w, type="q8_0")
        plain, whole = (attnkit.linear(x, matrix, bias, integers=integers) for integers in (False, True))
        self.assertEqual(plain.tobytes(), linear_by_ctypes(x, w, bias, 0).tobytes())
        self.assertEqual(whole.tobytes(), linear_by_ctypes(x, w, bias, INTEGERS).tobytes())
        self.assertNotEqual(plain.tobytes(), whole.tobytes())
        self.assertLess(np.abs(plain - whole).max(), 0.5)
        self.assertEqual(attnkit.linear(x[3], matrix, bias, integers=True, threads=2).tobytes(), whole[3].tobytes())

    def test_refuses(self):
        x, w = drawn(1, 3, 64), drawn(2, 40, 64)
        for matrix in (w, attnkit.Matrix(w, type="bfloat16")):
            with self.assertRaisesRegex(NotImplementedError, "ATTNKIT_INTEGERS, but w.type is"):
                attnkit.linear(x, matrix, integers=True)


class Units(unittest.TestCase):
    """Tests attnkit.enable, and the units that attnkit.info lists."""

    def test_info(self):
        units = {unit["name"]: unit for unit in attnkit.info()["units"]}
        self.assertGreaterEqual(set(units), {"avx512+vnni", "avx512+bf16", "avx512+amx"})
        for unit in units.values():
            self.assertTrue(unit["needs"] and unit["reason"])
            self.assertLessEqual(unit["used"], unit["can_run"])
            self.assertLessEqual(unit["can_run"], unit["built"])

    def test_enable(self):
        """enable takes a unit that can run, and raises an exception for any other unit. If avx512+amx cannot run, only
        test_amx tries it. No bit changes, even in a thread that has made calls before."""
        q, k, v = inputs()
        wanted = attnkit.attention(q, k, v, bf16_products=True).tobytes()
        units = [(unit["name"], unit["can_run"]) for unit in attnkit.info()["units"]]
        wrong, turns = [], threading.Barrier(2)

        def work():
            for _ in range(1 + len(units)):
                turns.wait(60)
                if attnkit.attention(q, k, v, bf16_products=True).tobytes() != wanted:
                    wrong.append(threading.current_thread())
        worker = threading.Thread(target=work)
        worker.start()
        turns.wait(60)
        for name, can_run in units:
            if can_run:
                self.assertIsNone(attnkit.enable(name))
            elif name != "avx512+amx":
                with self.assertRaisesRegex(RuntimeError, "^ATTNKIT_BAD_ISA: .*" + name.replace("+", r"\+")):
                    attnkit.enable(name)
            self.assertEqual(attnkit.attention(q, k, v, bf16_products=True).tobytes(), wanted)
            turns.wait(60)
        worker.join()
        self.assertEqual(wrong, [])

    def test_amx(self):
        """avx512+amx needs permission of the operating system. enable gets this permission, or names the unit in an
        exception."""
        try:
            attnkit.enable("avx512+amx")
        except RuntimeError as error:
            self.assertRegex(str(error), r"^ATTNKIT_BAD_ISA: .*avx512\+amx")
            self.assertNotEqual(attnkit.info()["unit"], "avx512+amx")
            return
        self.assertTrue({unit["name"]: unit for unit in attnkit.info()["units"]}["avx512+amx"]["can_run"])

    def test_refuses(self):
        for name in ("avx512+nothing", "avx512", ""):
            with self.assertRaisesRegex(RuntimeError, "ATTNKIT_BAD_ISA"):
                attnkit.enable(name)
        with self.assertRaisesRegex(TypeError, "unit"):
            attnkit.enable(5)
        with self.assertRaisesRegex(TypeError, r"enable\(\) needs unit"):
            attnkit.enable()


if __name__ == "__main__":
    unittest.main()
