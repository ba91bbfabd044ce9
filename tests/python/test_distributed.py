# SPDX-License-Identifier: Apache-2.0
"""Tests attnkit.distributed on ranks that are threads. Results of chain_attention have the bits of one
process. Results of tree_attention are inside the bound of a merge. Calls send exactly as many messages and bytes as the
cost model says. If a call fails on one rank, every rank gets the error."""

import subprocess
import sys
import time
import unittest

import attnkit
import numpy as np
from attnkit.distributed import Group, Link, PeerError, chain_attention, chain_cost, tree_attention, tree_cost
from distributed_cases import CASES, chain_has_the_bits, drawn, make, on_rank, same, spread, tree_error
from local_ranks import Transport, run_ranks
from reference import oracle

LINK = Link(latency=1e-5, bandwidth=1e9)
SIZES = (1, 2, 3, 4)


class Chain(unittest.TestCase):
    def test_has_the_bits_of_one_process(self):
        for name in CASES:
            for size in SIZES:
                with self.subTest(name, ranks=size):
                    self.assertEqual(run_ranks(size, lambda group: chain_has_the_bits(group, name)), [True] * size)

    def test_bits_do_not_depend_on_blocks(self):
        for rows in (1, 7, 100, 5000):
            with self.subTest(rows=rows):
                self.assertEqual(run_ranks(3, lambda group: chain_has_the_bits(group, "prefill", block_rows=rows,
                                                                               threads=1 + group.rank)), [True] * 3)

    def test_ranks_may_hold_any_number_of_chunks(self):
        for bounds in ([0, 0, 512, 2100], [0, 1536, 1536, 2100], [0, 2100, 2100, 2100], [0, 1024, 2100, 2100]):
            with self.subTest(bounds=bounds):
                self.assertEqual(run_ranks(3, lambda group: chain_has_the_bits(
                    group, "prefill", keys=slice(bounds[group.rank], bounds[group.rank + 1]))), [True] * 3)

    def test_result_may_stay_on_the_last_rank(self):
        q, k, v, _ = make("not causal")

        def work(group):
            keys = spread(1537, 3, group.rank)
            return chain_attention(q, k[:, :, keys], v[:, :, keys], group, everywhere=False, return_lse=True)
        first, second, last = run_ranks(3, work)
        self.assertEqual((first, second), (None, None))
        self.assertTrue(same(last, attnkit.attention(q, k, v, return_lse=True)))

    def test_a_group_serves_many_calls(self):
        def work(group):
            return [chain_has_the_bits(group, name) for name in ("decode", "masks", "decode", "dropout")]
        self.assertEqual(run_ranks(4, work), [[True] * 4] * 4)


class Tree(unittest.TestCase):
    def test_all_ranks_have_the_same_bits_near_those_of_one_process(self):
        for name, case in CASES.items():
            for size in SIZES:
                with self.subTest(name, ranks=size):
                    errors = run_ranks(size, lambda group: tree_error(group, name))
                    self.assertEqual(len(set(errors)), 1)
                    self.assertLess(errors[0][0], 3e-6 if case[4] is np.float32 else 0.02)
                    self.assertLess(errors[0][1], 3e-6)

    def test_error_is_inside_the_bound(self):
        """The errors of the parts are measured, so that only the bound of the merge is tested."""
        unit = 2.0**-24
        worst = 0.0
        for seed in range(20):
            size = 2 + seed % 3
            q = drawn(seed, 1, 2, 5, 64) * (1 + seed)
            k, v = drawn(100 + seed, 1, 2, 512 * size, 64), drawn(200 + seed, 1, 2, 512 * size, 64)
            parts = [slice(512 * i, 512 * i + 512) for i in range(size)]
            results = run_ranks(size, lambda group: tree_attention(q, k[:, :, parts[group.rank]],
                                                                   v[:, :, parts[group.rank]], group))
            exact, exact_lse = oracle(q, k, v)
            computed = [attnkit.attention(q, k[:, :, p], v[:, :, p], return_lse=True) for p in parts]
            exact_parts = [oracle(q, k[:, :, p], v[:, :, p]) for p in parts]
            w = [np.exp(lse - exact_lse)[..., None] for _, lse in exact_parts]
            d = max(np.abs(got[1] - true[1]).max() for got, true in zip(computed, exact_parts))
            a = sum(wi * np.abs(got[0]) for wi, got in zip(w, computed))
            off = sum(wi * np.abs(got[0] - true[0]) for wi, got, true in zip(w, computed, exact_parts))
            most = np.max([np.abs(got[0]) for got in computed], axis=0)
            bound = off + (np.expm1(2 * d) + 6 * unit) * a + size * 2.0**-99 * most + 2.0**-149
            ratio = (np.abs(results[0] - exact) / bound).max()
            worst = max(worst, ratio)
            self.assertLess(ratio, 1.0)
            self.assertTrue(all(same(result, results[0]) for result in results))
        print(f"# worst error / bound of tree_attention: {worst:.2f}")
        self.assertGreater(worst, 0.01)  # far smaller errors would not test the bound


class Costs(unittest.TestCase):
    def counts(self, group, function, name, **more):
        q, k, v, options = make(name)
        keys = spread(k.shape[-2], group.size, group.rank)
        function(q, k[..., keys, :], v[..., keys, :], group, **on_rank(options, keys), **more)
        return group.sent_messages, group.sent_bytes

    def test_chain_sends_what_the_model_says(self):
        for name, (shape, _, _, value_dim, q_type, _, options) in CASES.items():
            if 0 in shape:
                continue
            for size, more in ((1, {}), (2, {}), (4, {}), (3, {"everywhere": False}), (4, {"block_rows": 33})):
                with self.subTest(name, ranks=size):
                    sent = np.sum(run_ranks(size, lambda g: self.counts(g, chain_attention, name, **more)), axis=0)
                    cost = chain_cost(shape, value_dim, size, compute=1.0, link=LINK,
                                      itemsize=np.dtype(q_type).itemsize,
                                      return_lse=options.get("return_lse", False), **more)
                    self.assertEqual(tuple(sent), (cost.messages, cost.bytes))

    def test_tree_sends_what_the_model_says(self):
        for name in ("decode", "decode of a batch", "bfloat16"):
            for size in (1, 2, 3, 4, 7):
                with self.subTest(name, ranks=size):
                    sent = np.sum(run_ranks(size, lambda g: self.counts(g, tree_attention, name)), axis=0)
                    cost = tree_cost(CASES[name][0], CASES[name][3], size, compute=1.0, link=LINK)
                    self.assertEqual(tuple(sent), (cost.messages, cost.bytes))

    def test_a_hop_is_the_state_of_a_block(self):
        cost = chain_cost((1, 8, 2048, 128), 128, 2, compute=1.0, link=LINK)
        self.assertEqual((cost.blocks, cost.hop_bytes), (16, 8 * 128 * (8 * 128 + 12)))

    def test_time_is_that_of_a_pipeline(self):
        still = Link(latency=0.0, bandwidth=float("inf"))
        cost = chain_cost((1, 8, 2048, 128), 128, 4, compute=32.0, link=still)
        self.assertEqual((cost.blocks, cost.fill, cost.seconds), (32, 0.75, 8.75))
        cost = chain_cost((1, 8, 1, 128), 128, 4, compute=32.0, link=Link(1.0, float("inf")), everywhere=False)
        self.assertEqual((cost.blocks, cost.seconds), (1, 2 + 32 + 3))
        self.assertEqual(tree_cost((1, 8, 1, 128), 128, 4, compute=32.0, link=Link(1.0, float("inf"))).seconds, 12)


class BadInput(unittest.TestCase):
    def expect(self, work, kind, *texts, size=3):
        """Checks that every rank raises an error of this kind with these texts, and that the group still works
        afterwards."""
        def both(group):
            try:
                work(group)
            except Exception as error:
                return error, chain_has_the_bits(group, "decode")
            return None, False
        for error, works in run_ranks(size, both):
            self.assertIsInstance(error, kind)
            for text in texts:
                self.assertIn(text, str(error))
            self.assertTrue(works)

    def call(self, group, function=chain_attention, q=None, k=None, v=None, **options):
        arrays = (drawn(1, 1, 4, 8, 16), drawn(2, 1, 2, 512, 16), drawn(3, 1, 2, 512, 16))
        q, k, v = (given if given is not None else own for given, own in zip((q, k, v), arrays))
        return function(q, k, v, group, **options)

    def test_ranks_that_disagree(self):
        other = {
            "q: float32 [1, 4, 8, 16] on rank 0, float32 [1, 4, 9, 16] on rank 1": {"q": drawn(1, 1, 4, 9, 16)},
            "q: float32 [1, 4, 8, 16] on rank 0, float16 [1, 4, 8, 16] on": {"q": drawn(1, 1, 4, 8, 16, dtype="f2")},
            "the numbers of q": {"q": drawn(9, 1, 4, 8, 16)},
            "k: float32 [1, 2] x 16 on rank 0, float32 [1, 4] x 16": {"k": drawn(2, 1, 4, 512, 16),
                                                                    "v": drawn(3, 1, 4, 512, 16)},
            "k: float32 [1, 2] x 16 on rank 0, float16": {"k": drawn(2, 1, 2, 512, 16, dtype="f2")},
            "v: float32 [1, 2] x 16 on rank 0, float32 [1, 2] x 17": {"v": drawn(3, 1, 2, 512, 17)},
            "causal: none on rank 0, 'upper-left' on rank 1": {"causal": "upper-left"},
            "softcap: none on rank 0, 3.0 on rank 1": {"softcap": 3},
            "scale: none on rank 0, 0.5 on rank 1": {"scale": 0.5},
            "kv_lens": {"kv_lens": [3]},
            "sinks": {"sinks": np.zeros(4, np.float32)},
            "mask": {"mask": np.ones((1, 512), bool)},
            "return_lse: False on rank 0, True on rank 1": {"return_lse": True},
            "everywhere": {"everywhere": False},
            "block_rows": {"block_rows": 3},
            "the function: chain_attention on rank 0, tree_attention on rank 1": {"function": tree_attention},
        }
        for text, options in other.items():
            with self.subTest(text):
                self.expect(lambda group: self.call(group, **(options if group.rank == 1 else {})), ValueError,
                            "the ranks disagree on " + text)

    def test_one_rank_with_a_bad_argument(self):
        bad = {
            "mask has the shape": {"mask": np.ones((2, 1, 8, 512), bool)},
            "mask has 7 rows": {"mask": np.ones((7, 512), bool)},
            "mask is list": {"mask": [True]},
            "scale is str": {"scale": "x"},
            "threads is 5000": {"threads": 5000},
            "q_offsets has 3 elements": {"q_offsets": [1, 2, 3]},
            "q is list": {"q": [1.0]},
            "v has": {"v": drawn(3, 1, 2, 511, 16)},
            "q_heads is 4": {"k": drawn(2, 1, 3, 512, 16), "v": drawn(3, 1, 3, 512, 16)},
            "sinks has": {"sinks": np.zeros(3, np.float32)},
            "softcap is -1": {"softcap": -1.0},
            "kv_lens has 2 elements": {"kv_lens": [1, 2]},
            "kv_lens must be an integer": {"kv_lens": [1.5]},
            "window needs to know where the rows are": {"window": (3, 0)},
            "alibi_slopes needs to know": {"alibi_slopes": np.ones(4, np.float32)},
            "block_rows is 0": {"block_rows": 0},
            "return_weights is not an option": {"return_weights": True},
        }
        for text, options in bad.items():
            with self.subTest(text):
                self.expect(lambda group: self.call(group, **(options if group.rank == 1 else {})),
                            (ValueError, TypeError), text)

    def test_the_same_options_in_another_form(self):
        def work(group):
            options = [{"scale": 0.5, "window": (3, None), "causal": "upper-left"},
                       {"causal": "upper-left", "window": [np.int64(3), None], "scale": np.float32(0.5)}]
            return self.call(group, **options[group.rank])
        results = run_ranks(2, work)
        self.assertTrue(same(*results))

    def test_no_keys_at_all(self):
        none = drawn(1, 1, 2, 0, 16)
        for function in chain_attention, tree_attention:
            for result in run_ranks(3, lambda group: self.call(group, function, k=none, v=none)):
                self.assertEqual((result.shape, np.abs(result).max()), ((1, 4, 8, 16), 0))

    def test_lengths_that_only_all_ranks_know(self):
        self.expect(lambda group: self.call(group, kv_lens=[1537]), ValueError, "kv_lens[0] is 1537", "(1536)")
        self.expect(lambda group: self.call(group, kv_lens=-1), ValueError, "kv_lens[0] is -1")
        part = drawn(2, 1, 2, 500, 16)
        self.expect(lambda group: self.call(group, k=part, v=part), ValueError,
                    "the ranks before rank 1 hold 500 keys: must be a multiple of 512")

    def test_a_silent_rank(self):
        for function in (chain_attention, tree_attention):
            for silent in range(3):
                with self.subTest(function.__name__, silent=silent):
                    began = time.monotonic()
                    results = run_ranks(3, lambda group: self.call(group, function), timeout=0.5, silent=[silent])
                    self.assertLess(time.monotonic() - began, 10)
                    for rank in {0, 1, 2} - {silent}:
                        self.assertIsInstance(results[rank], PeerError)
                        self.assertIn("within 0.5 s", str(results[rank]))

    def test_a_group_is_over_after_an_error(self):
        def work(group):
            with self.assertRaises(PeerError):
                self.call(group)
            return self.call(group)
        for error in run_ranks(2, work, timeout=0.2, silent=[1])[:1]:
            self.assertIsInstance(error, PeerError)
            self.assertIn("cannot be used after an error", str(error))

    def test_time_outs_must_be_positive(self):
        with self.assertRaisesRegex(ValueError, "timeout is 0"):
            Group(Transport(0, 1, {}), 0)

    def test_import_needs_neither_torch_nor_mpi4py(self):
        code = ("import sys; sys.modules['torch'] = sys.modules['mpi4py'] = None; import attnkit.distributed")
        subprocess.run([sys.executable, "-c", code], check=True)


if __name__ == "__main__":
    unittest.main()
