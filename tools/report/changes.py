# SPDX-License-Identifier: Apache-2.0
"""Finds where the level of a series changed. The search looks at every split of the whole series, and of overlapping
parts that have half the length, a quarter of it, and so on (seeded binary segmentation). The best split separates the
means of its two sides best (CUSUM). The best split is a change if hardly any permutation of the same values has a split
that separates the means equally well (permutation test). The search then continues in the values before the split and
after it. Without the parts, a temporary dip between two equal levels could be missed. No distribution is assumed.
Outliers are first moved to Tukey's outer fences, so that one bad run does not count as a change. If runs are
independent, the probability that a series without a change shows a change is at most LEVEL. Steps below LEAST_STEP
never count."""

import functools
import itertools
import math
import random
from statistics import median, quantiles

LEVEL = 0.01
PERMUTATIONS = 999
LEAST_RUNS = 10     # runs of a series or part; fewer runs have too few permutations
LEAST_SEGMENT = 3   # smallest number of runs before a change and after it
LEAST_STEP = 0.01   # share of the level before the change


def within_fences(values):
    low, _, high = quantiles(values, n=4)
    reach = 3 * (high - low)
    return [min(max(value, low - reach), high + reach) for value in values] if reach else values


@functools.cache
def candidates(n):
    """Returns, for each split of each part of n values, (start of the part, first index after the split, end of the
    part, share of the part's values that are before the split, factor of the separation)."""
    splits, length = [], n
    while length >= LEAST_RUNS or not splits:
        for start in range(0, n - length + 1, max(1, length // 2)):
            end = start + length
            splits += [(start, i, end, (i - start) / length, math.sqrt(length / ((i - start) * (end - i))))
                       for i in range(start + LEAST_SEGMENT, end - LEAST_SEGMENT + 1)]
        length //= 2
    return splits


def best_split(values):
    """Returns (separation, first index after the split) of the best split."""
    sums = list(itertools.accumulate(values, initial=0.0))
    return max((abs(sums[i] - sums[start] - (sums[end] - sums[start]) * share) * weight, i)
               for start, i, end, share, weight in candidates(len(values)))


def is_unlikely(values, separation):
    """Returns whether at most a share LEVEL of random permutations of the values has a best split with a separation of
    at least `separation`. Stops as soon as the share is larger."""
    lots, values = random.Random(1), list(values)
    allowed = int(LEVEL * (PERMUTATIONS + 1)) - 1
    for _ in range(PERMUTATIONS):
        lots.shuffle(values)
        allowed -= best_split(values)[0] >= separation
        if allowed < 0:
            return False
    return True


def splits(values):
    if len(values) < LEAST_RUNS:
        return []
    tame = within_fences(values)
    separation, place = best_split(tame)
    if separation <= 1e-9 * abs(max(tame, key=abs)) or not is_unlikely(tame, separation):
        return []
    return [*splits(values[:place]), place, *(place + i for i in splits(values[place:]))]


def steps(values, places):
    """`places` are the indices at which new levels begin. Returns (step, place) for each place. A step is the size of
    the change from the median of the level before the place to the median of the level after the place, as a share of
    the median before."""
    levels = [median(values[start:end]) for start, end in zip([0, *places], [*places, len(values)])]
    return [(abs(after / before - 1), place) for before, after, place in zip(levels, levels[1:], places)]


def find(values):
    """Returns the index of the first value of each new level."""
    places = splits(values)
    while places and min(steps(values, places))[0] < LEAST_STEP:
        places.remove(min(steps(values, places))[1])
    return places
