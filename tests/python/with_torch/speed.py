# SPDX-License-Identifier: Apache-2.0
"""Prints the times of a tiny call by PyTorch's own function and by the functions of attnkit. Prints the times of larger
calls by PyTorch's own function, with attnkit and without. The ways to make a call take turns, on one thread. Each
figure is the time of a call, averaged over the calls of the fastest turn. The tiny call outside of inference_mode is
measured alone.

    python3 tests/python/with_torch/speed.py
"""

import time

import attnkit
import attnkit.torch
import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

TURNS = 30
LARGE = (("32 / 8 heads, 1 row, 4096 keys, D 128", (1, 32, 1, 128), (1, 8, 4096, 128), False),
         ("8 heads, 512 x 512, D 64, causal", (1, 8, 512, 64), (1, 8, 512, 64), True),
         ("8 / 2 heads, 2048 x 2048, D 128, causal", (1, 8, 2048, 128), (1, 2, 2048, 128), True))


def in_python(q, k, v, *_, **__):
    """Takes the place of PyTorch's operator of flash attention. Passes NumPy's views of q, k and v to attnkit, and
    ignores all other arguments."""
    out, lse = attnkit.attention(q.numpy(), k.numpy(), v.numpy(), return_lse=True)
    return torch.from_numpy(out), torch.from_numpy(lse)


class PythonOverride:
    """Puts in_python in the place of PyTorch's operator, until remove() is called."""

    def __init__(self):
        self.library = torch.library.Library("aten", "IMPL")
        self.library.impl("_scaled_dot_product_flash_attention_for_cpu", in_python, "CPU", allow_override=True)

    def remove(self):
        self.library = None


def shortest(ways, turns, calls):
    """`ways` is a dict: name -> (activate, function). In each turn, each way runs activate() and then makes its calls.
    Returns a dict: name -> the time of a call in seconds, averaged over the calls of the fastest turn."""
    times = dict.fromkeys(ways, float("inf"))
    for _ in range(turns):
        for name, (activate, function) in ways.items():
            activate()
            function()
            began = time.perf_counter()
            for _ in range(calls):
                function()
            times[name] = min(times[name], (time.perf_counter() - began) / calls)
    attnkit.torch.restore()
    return times


def by_python():
    torch.nn.attention.activate_flash_attention_impl("attnkit in Python")


def tiny():
    q, k, v = torch.randn(2, 8, 3, 64), torch.randn(2, 8, 5, 64), torch.randn(2, 8, 5, 64)
    qa, ka, va = q.numpy(), k.numpy(), v.numpy()
    off = torch.nn.attention.restore_flash_attention_impl
    quiet = lambda: off(_raise_warn=False)  # noqa: E731
    ways = {"scaled_dot_product_attention, PyTorch's": (quiet, lambda: sdpa(q, k, v)),
            "scaled_dot_product_attention, attnkit in C++": (attnkit.torch.activate, lambda: sdpa(q, k, v)),
            "scaled_dot_product_attention, attnkit in Python": (by_python, lambda: sdpa(q, k, v)),
            "attnkit.torch.attention": (quiet, lambda: attnkit.torch.attention(q, k, v)),
            "attnkit.attention on tensors": (quiet, lambda: attnkit.attention(q, k, v)),
            "attnkit.attention on NumPy's arrays": (quiet, lambda: attnkit.attention(qa, ka, va))}
    with torch.inference_mode():
        times = shortest(ways, TURNS, 200)
    name = "attnkit.torch.attention"
    times[name + " outside of inference_mode"] = shortest({name: ways[name]}, TURNS, 200)[name]
    for name, seconds in times.items():
        print(f"# tiny call: {seconds * 1e6:5.1f} us  {name}")


def large():
    for name, of_q, of_k, causal in LARGE:
        for dtype in (torch.float32, torch.bfloat16):
            q, k, v = (torch.randn(shape).to(dtype) for shape in (of_q, of_k, of_k))

            def call():
                return sdpa(q, k, v, is_causal=causal, enable_gqa=True)
            times = shortest({"theirs": (attnkit.torch.restore, call), "ours": (attnkit.torch.activate, call)}, 7, 1)
            theirs, ours = times["theirs"] * 1e3, times["ours"] * 1e3
            print(f"# large call: {theirs:7.2f} ms PyTorch, {ours:7.2f} ms attnkit, {theirs / ours:.1f} x  {name}, "
                  f"{str(dtype)[6:]}")


def main():
    torch.nn.attention.register_flash_attention_impl("attnkit in Python", register_fn=PythonOverride)
    torch.set_num_threads(1)
    tiny()
    with torch.no_grad():
        large()


if __name__ == "__main__":
    main()
