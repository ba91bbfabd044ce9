# SPDX-License-Identifier: Apache-2.0
"""Puts the measurements of tools/llamacpp_speed.py in the pages: the table in docs/llamacpp.md, a short table in
README.md, and a plot in both pages. Two comments of a page enclose the part that is replaced. Needs matplotlib."""

import datetime
import re
from pathlib import Path

import matplotlib
from files import whole
from speed_table import heading, short_table
from tensors import cpu_name

matplotlib.use("agg")
from matplotlib import pyplot  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
PLOT = ROOT / "bench" / "results" / "llamacpp.png"
PART = re.compile(r"(<!-- by tools/llamacpp_speed\.py --write -->\n).*?(<!-- end -->\n)", re.S)
COLOURS = {"prefill": "#1f6fb4", "decode": "#d1721f"}


def origin():
    return f"{cpu_name()}, {datetime.date.today()}"


def draw(rows):
    """Draws a panel for each type of cache. Speed 1 is the speed of stock llama.cpp with -fa on or -fa off, whichever
    is faster."""
    caches = list(dict.fromkeys(row.kv for row in rows))
    depths = sorted({row.depth for row in rows})
    figure, panels = pyplot.subplots(1, len(caches), figsize=(5 * len(caches), 3.6), squeeze=False)
    for panel, kv in zip(panels[0], caches):
        for what, threads in dict.fromkeys((row.what, row.threads) for row in rows):
            of_depth = {row.depth: row.faster for row in rows if (row.kv, row.what, row.threads) == (kv, what, threads)}
            panel.plot([depths.index(depth) for depth in of_depth], list(of_depth.values()),
                       marker="o", color=COLOURS[what], linestyle="-" if threads == 1 else "--",
                       label=f"{what}, {threads} thread{'s' * (threads > 1)}")
        panel.axhline(1, color="#777777", linewidth=1)
        panel.set_xticks(range(len(depths)), [str(depth) for depth in depths])
        panel.set(title=f"KV of {kv}", xlabel="tokens in the cache", ylabel="times as fast as stock", ylim=(0, None))
        panel.legend(frameon=False)
    figure.tight_layout()
    with whole(PLOT) as part:
        figure.savefig(part, dpi=120, format="png", facecolor="white")


def replace_part(path, text):
    old = path.read_text()
    new, count = PART.subn(lambda found: f"{found[1]}\n{text}\n\n{found[2]}", old)
    if count != 1:
        raise SystemExit(f"llamacpp_speed.py: {path} has {count} parts for the figures instead of 1")
    with whole(path) as part:
        part.write_text(new)


def write(rows):
    """Puts the rows in the plot and both pages."""
    draw(rows)
    replace_part(ROOT / "docs" / "llamacpp.md",
                 "\n".join([heading(), *(row.line() for row in rows)]) +
                 f"\n\n![Speed beside llama.cpp's own](../{PLOT.relative_to(ROOT)})\n\nMeasured on {origin()}.")
    replace_part(ROOT / "README.md",
                 f"![llama.cpp with attnkit beside its own attention]({PLOT.relative_to(ROOT)})\n\n"
                 f"{short_table(rows)}\n\n"
                 "The speed of llama.cpp with attnkit, divided by the speed of stock llama.cpp with `-fa on` or "
                 "`-fa off`, whichever is\nfaster. The depth is the number of tokens in the cache. Measured on "
                 f"{origin()}.")
