# SPDX-License-Identifier: Apache-2.0
"""The demo reads handwritten digits by attention. Then it prints speed and error of each instruction set that can run.

Usage: demo.py ATTNKIT. ATTNKIT is the path of the command. The demo needs NumPy. tools/demo runs this script.

Attention is kernel regression. The keys are [x, -|x|^2 / 2] and the queries [y, 1]. Their dot product is
x.y - |x|^2 / 2 = (|y|^2 - |x - y|^2) / 2. Therefore the weight of a known digit x is proportional to a Gaussian of the
distance from x to the unknown digit y. The values are one-hot labels. The result has, for each of the ten labels, the
sum of the weights of the known digits with this label."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np

KNOWN = 1437  # the first 1437 digits are known; the other 360 are read
SCALE = 0.02  # 1 / width^2 of the Gaussian; with 0.015 .. 0.05, 345 or 346 of the 360 digits are read correctly
COLUMNS = 100


# ------------------------------------------------------------------------------- the command


def attnkit(command, *arguments, folder=None):
    """Runs the command and returns its output. If the command fails, ends the demo."""
    done = subprocess.run([command, *arguments], cwd=folder, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"demo: attnkit {' '.join(arguments)} failed")
    return done.stdout


def run(command, q, k, v, *options):
    """Runs `attnkit run`. Returns the result and the summary."""
    with tempfile.TemporaryDirectory() as folder:
        for name, array in (("q", q), ("k", k), ("v", v)):
            np.save(os.path.join(folder, name), np.ascontiguousarray(array, dtype=np.float32))
        summary = attnkit(command, "run", "--q", "q.npy", "--k", "k.npy", "--v", "v.npy",
                          "-o", "out.npy", *options, folder=folder)
        return np.load(os.path.join(folder, "out.npy")), summary


def oracle(q, k, v, scale=None, causal=False):
    """Computes attention in float64. Arrays are [heads, rows, dim]. Causal attention is aligned to the bottom right."""
    q, k, v = (np.asarray(a, dtype=np.float64) for a in (q, k, v))
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    out = np.empty(q.shape[:-1] + v.shape[-1:])
    for head in range(q.shape[0]):
        kv_head = head // (q.shape[0] // k.shape[0])
        scores = scale * (q[head] @ k[kv_head].T)
        if causal:
            first = k.shape[1] - q.shape[1]
            scores[~np.tri(*scores.shape, first, dtype=bool)] = -np.inf
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        out[head] = weights @ v[kv_head] / weights.sum(axis=1, keepdims=True)
    return out


# -------------------------------------------------------------------------------- the digits


def load_digits():
    folder = pathlib.Path(__file__).resolve().parents[1] / "examples" / "digits"
    return np.load(folder / "digits.npy").astype(np.float32), np.load(folder / "labels.npy")


def digits_as_attention(pixels, labels):
    """Returns q [1, 360, 65], k [1, 1437, 65] and v [1, 1437, 10]."""
    known, unknown = pixels[:KNOWN], pixels[KNOWN:]
    k = np.column_stack([known, -(known ** 2).sum(axis=1) / 2])
    q = np.column_stack([unknown, np.ones(len(unknown), dtype=np.float32)])
    return q[None], k[None], np.eye(10, dtype=np.float32)[labels[:KNOWN]][None]


def picture(pixels):
    """Returns a digit as 8 lines of 16 characters."""
    shades = " " + "".join(shade * 4 for shade in "░▒▓█")
    return ["".join(shades[int(p)] * 2 for p in row) for row in pixels.reshape(8, 8)]


def bar(weight, width):
    eighths = round(weight * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")).ljust(width)


def card(pixels, label, weights):
    """Returns a digit, the weight of each label and the verdict, as 11 lines of 32 characters."""
    answer = int(weights.argmax())
    verdict = f"a {label}, " + ("read" if answer == label else "MISREAD") + f" as {answer}"
    lines = [""] + picture(pixels) + [""]
    bars = [f"{i} {bar(w, 8)} {f'{100 * w:.0f} %' if w >= 0.005 else '':>5}"
            for i, w in enumerate(weights)]
    return [f"{verdict:32}"] + [f"{left:16}{right}" for left, right in zip(lines, bars)]


def worth_showing(labels, out):
    """Chooses the digits to show: three that are read right with a weight above 0.99, the two that are read right with
    the smallest weights, and the misread digit with the smallest weight. Here, the weight of a digit is the largest of
    the weights of its ten labels."""
    sure = out.max(axis=1)
    right = out.argmax(axis=1) == labels
    surest = [int(i) for i in np.nonzero(right & (sure > 0.99))[0][:3]]
    close = [int(i) for i in np.argsort(np.where(right, sure, 2))[:2]]
    return surest + close + [int(np.where(right, 2, sure).argmin())]


def show_digits(command):
    pixels, labels = load_digits()
    q, k, v = digits_as_attention(pixels, labels)
    out, summary = run(command, q, k, v, "--scale", str(SCALE), "--repeat", "5")
    truth = oracle(q, k, v, scale=SCALE)
    unknown, meant = pixels[KNOWN:], labels[KNOWN:]
    right = int((out[0].argmax(axis=1) == meant).sum())
    right64 = int((truth[0].argmax(axis=1) == meant).sum())
    share = f"{right} of {len(meant)} digits are read right: {100 * right / len(meant):.1f} %"
    print(f"Handwritten digits, read by one attention over {KNOWN} known digits\n")
    print("    " + summary.strip().replace("\n", "\n    "))
    print(f"\n{share}; float64 NumPy reads {right64} right.")
    print(f"Largest difference between the two results: {np.abs(out - truth).max():.1e}.\n")
    cards = [card(unknown[i], meant[i], out[0, i]) for i in worth_showing(meant, out[0])]
    for row in (cards[:3], cards[3:]):
        for lines in zip(*row):
            print("  ".join(lines).rstrip())
        print()


# ------------------------------------------------------------------------------- the kernels

# name, query heads, KV heads, query rows, keys, dim, causal, repeats
SMALL = ("4 heads, 256 x 256, D 64, causal", 4, 4, 256, 256, 64, True, 5)
SHAPES = [
    SMALL,
    ("prefill 32/8 heads, 512 x 512, D 128, causal", 32, 8, 512, 512, 128, True, 5),
    ("encoder 12 heads, 1024 x 1024, D 64", 12, 12, 1024, 1024, 64, False, 5),
    ("decode 32/8 heads, 1 x 4096, D 128", 32, 8, 1, 4096, 128, True, 20),
]


def figures(summary):
    """Returns (name of the ISA, best time in ms, GFLOP/s) from a summary."""
    found = re.search(r"^ran on +(\w+).*^time +best (\S+) ms.*^speed +(\S+) GFLOP/s", summary,
                      re.MULTILINE | re.DOTALL)
    return found[1], float(found[2]), float(found[3])


def show_run(command, shape, arrays, truth, isa, threads):
    causal = ("--causal", "bottom-right") if shape[6] else ()
    out, summary = run(command, *arrays, "--isa", isa, "--threads", str(threads),
                       "--repeat", str(shape[7]), *causal)
    name, ms, gflops = figures(summary)
    error = np.abs(out - truth).max()
    print(f"    {name:10}{threads:>7}{ms:>12.3f} ms{gflops:>12.1f}{error:>16.1e}", end="")
    return out.tobytes()


def show_shape(command, shape, isas, cpus):
    """Prints a line for each ISA with one thread. If there are several CPUs, also prints a line for the best ISA on all
    CPUs. `isas` has the worst ISA first."""
    name, q_heads, kv_heads, q_len, kv_len, dim, causal, _ = shape
    random = np.random.default_rng(1)
    sizes = ((q_heads, q_len, dim), (kv_heads, kv_len, dim), (kv_heads, kv_len, dim))
    arrays = [random.standard_normal(size, dtype=np.float32) for size in sizes]
    truth = oracle(*arrays, causal=causal)
    print(f"\n  {name}")
    runs = [(isa, 1) for isa in isas] + ([(isas[-1], cpus)] if cpus > 1 else [])
    first = None
    for isa, threads in runs:
        bits = show_run(command, shape, arrays, truth, isa, threads)
        print("" if first is None else "   same bits" if bits == first else "   OTHER BITS")
        first = first or bits


def show_kernels(command):
    isas = attnkit(command, "info", "--isas").split()
    cpus = len(os.sched_getaffinity(0))
    print("The kernels that run here, on random f32; errors are against float64 NumPy")
    print(f"\n    {'ISA':10}{'threads':>7}{'best time':>15}{'GFLOP/s':>12}{'largest error':>16}")
    for shape in SHAPES:
        # The scalar kernels run only the small shape, because they are not made for speed.
        fit = [isa for isa in isas if isa != "scalar" or shape is SMALL]
        if fit:
            show_shape(command, shape, fit, cpus)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    command = os.path.abspath(sys.argv[1])
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `demo | head` ends without a message
    sys.stdout.reconfigure(encoding="utf-8", line_buffering=True)
    start = time.monotonic()
    print("=" * COLUMNS)
    show_digits(command)
    print("-" * COLUMNS)
    show_kernels(command)
    print(f"\nThe demo took {time.monotonic() - start:.0f} s.")


main()
