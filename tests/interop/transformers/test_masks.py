# SPDX-License-Identifier: Apache-2.0
"""Tests the mask that attnkit makes for transformers. The options that Mask.options() returns for
attnkit.torch.attention must mean the same, element by element, as transformers' own mask. Other code that reads the
mask must get the elements of transformers' own mask. Arithmetic with the mask must be an error."""

import random
import unittest

import torch
from attnkit.torch import attention
from attnkit.transformers import Mask
from attnkit.transformers._mask import make_mask
from attnkit.transformers._pattern import Pattern, recognise
from transformers import masking_utils as theirs

CASES = 300


def drawn(chance):
    """Draws the arguments of a mask: one of the known functions, keys in a cache before the rows, room for later keys,
    and padding. Some caches have dropped their first keys."""
    window = chance.randint(1, 12)
    functions = ((theirs.causal_mask_function, None, True), (theirs.bidirectional_mask_function, None, False),
                 (theirs.sliding_window_causal_mask_function(window), window, True),
                 (theirs.sliding_window_bidirectional_mask_function(window), window, False))
    function, local_size, allow_is_causal_skip = chance.choice(functions)
    batch, rows, past = chance.randint(1, 3), chance.choice((1, 2, 9)), chance.choice((0, 0, 5, 11))
    gone = chance.randint(0, past)
    keys = past - gone + rows + chance.choice((0, 0, 7))
    arguments = {"batch_size": batch, "q_length": rows, "kv_length": keys, "q_offset": past, "kv_offset": gone,
                 "mask_function": function, "local_size": local_size, "allow_is_causal_skip": allow_is_causal_skip}
    if chance.random() < 0.6:
        length = gone + chance.choice((keys, rows + past - gone, max(1, keys - 2)))
        left = torch.tensor([chance.choice((0, 0, 3)) for _ in range(batch)])
        arguments["attention_mask"] = torch.arange(length) >= left[:, None]
    return arguments


def elements_of(options, mask):
    """Returns which keys each row sees with the given options of attention. V is the unit matrix, so column j of the
    result is the weight of key j."""
    batch, _, rows, keys = mask.shape
    q, k, v = torch.zeros(batch, 1, rows, 16), torch.zeros(batch, 1, keys, 16), torch.eye(keys).expand(batch, 1, -1, -1)
    return attention(q, k, v, **options) > 0


class Masks(unittest.TestCase):
    def test_masks_equal_the_masks_of_transformers(self):
        chance, said, none = random.Random(1), 0, 0
        for _ in range(CASES):
            arguments = drawn(chance)
            exact = theirs.sdpa_mask(**dict(arguments, allow_is_causal_skip=False))
            mask = make_mask(**arguments)
            if mask is None:  # one row that sees all keys
                none += 1
                self.assertTrue(exact.all() and exact.shape[2] == 1, arguments)
                continue
            self.assertIsInstance(mask, Mask)
            self.assertEqual(mask.shape, exact.shape)
            self.assertTrue(torch.equal(elements_of(mask.options(), mask), exact), arguments)
            self.assertIsNone(mask._elements)
            self.assertTrue(torch.equal(mask.elements(), exact), arguments)
            said += "mask" not in mask.options()
        self.assertGreater(said, CASES // 4)
        self.assertGreater(none, 3)

    def test_a_cache_that_counts_in_a_tensor(self):
        offset = torch.tensor(5)
        mask = make_mask(2, 3, 20, offset)
        offset += 3  # the cache changes its counter before attention is computed
        self.assertTrue(torch.equal(elements_of(mask.options(), mask), theirs.sdpa_mask(2, 3, 20, 5)))

    def test_recognises(self):
        window = theirs.sliding_window_causal_mask_function(8)
        self.assertEqual(recognise(window), Pattern(True, (7, 0)))
        self.assertEqual(recognise(theirs.sliding_window_bidirectional_mask_function(8)), Pattern(False, (8, 8)))
        self.assertEqual(recognise(theirs.causal_mask_function), Pattern(True))
        self.assertEqual(recognise(theirs.bidirectional_mask_function), Pattern(False))

    def test_other_functions_have_elements(self):
        """A function that resembles a known function is not recognised as the known function."""
        causal, window = theirs.causal_mask_function, theirs.sliding_window_overlay(4)
        others = (lambda b, h, q, k: k <= q, theirs.and_masks(causal, causal), theirs.or_masks(window, causal),
                  theirs.and_masks(window, causal, lambda b, h, q, k: k > 1),
                  theirs.and_masks(window, lambda b, h, q, k: k <= q + 1),
                  theirs.chunked_causal_mask_function(4, torch.zeros(2, dtype=torch.long)),
                  theirs.sliding_window_causal_mask_function(0))
        for number, function in enumerate(others):
            with self.subTest(number=number):
                self.assertIsNone(recognise(function))
                mask = make_mask(2, 6, 6, mask_function=function)
                self.assertNotIsInstance(mask, Mask)
                exact = theirs.sdpa_mask(2, 6, 6, mask_function=function, allow_is_causal_skip=False)
                self.assertTrue(torch.equal(mask, exact))

    def test_other_readers_get_elements(self):
        exact = theirs.sdpa_mask(2, 6, 6, allow_is_causal_skip=False)
        mask = make_mask(2, 6, 6)
        self.assertIs(mask.to(torch.bool), mask)
        for read in (lambda m: m[:, :, 2:, :4], lambda m: ~m, lambda m: torch.where(m, 0.0, -1.0), torch.Tensor.float,
                     lambda m: torch.cat((m, m), dim=-1), lambda m: m.expand(2, 4, 6, 6), torch.Tensor.clone,
                     lambda m: torch.zeros(2, 1, 6, 6).masked_fill(m, 1.0), lambda m: m.any(-1), lambda m: m & m):
            self.assertTrue(torch.equal(read(mask), read(exact)))
        self.assertEqual((mask.dtype, mask.ndim, mask.device), (exact.dtype, exact.ndim, exact.device))
        self.assertIn("causal=True", repr(mask))

    def test_arithmetic_is_an_error(self):
        mask = make_mask(2, 6, 6)
        for wrong in (lambda: torch.zeros(2, 1, 6, 6) + mask, lambda: mask * 2.0, lambda: 1 - mask):
            with self.assertRaisesRegex(RuntimeError, "computes attention by itself"):
                wrong()


if __name__ == "__main__":
    unittest.main()
