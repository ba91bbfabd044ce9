# SPDX-License-Identifier: Apache-2.0
"""Draws the plot, as PNG and SVG: the percentage of the machine's roof for each workload, the roofline with a point for
each measurement, and the time of the smallest call. attnkit's bars have strong colours and bold numbers; the bars of
the peers have paler colours. Colour-blind readers can tell the colours apart, and so can readers of a grey print."""

import math

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.colors import to_rgb  # noqa: E402
from matplotlib.lines import Line2D  # noqa: E402
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator  # noqa: E402

from files import whole  # noqa: E402
from report import types  # noqa: E402
from workloads import SHORT  # noqa: E402

# Colours, many of them of Okabe and Ito, and markers: OURS for the columns of attnkit, PEERS for the other libraries.
OURS = [("#0072B2", "o"), ("#56B4E9", "o"), ("#005580", "o"), ("#003F5C", "<"), ("#2F7FC1", ">")]
PEERS = {"PyTorch": ("#E69F00", "s"), "ONNX Runtime": ("#009E73", "^"), "OpenVINO": ("#CC79A7", "D"),
         "llama.cpp": ("#D55E00", "P"), "NumPy": ("#999999", "v")}
INK, FAINT = "#222222", "#dddddd"
# A dict: part of the name of a shape -> word in the plot.
KINDS = {"causal": "causal", "pad": "padded", "half": "causal", "tree": "tree", "cells": "cells"}
DPI = 160
STYLE = {"font.size": 10, "font.family": "DejaVu Sans", "svg.fonttype": "none", "text.color": INK,
         "axes.edgecolor": "#888888", "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK,
         "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 11,
         "axes.titleweight": "bold", "axes.titlelocation": "left"}


def looks(results):
    """Returns a dict: title of the column -> (colour, marker)."""
    ours = iter(OURS)
    return {title: next(ours) if column["isa"] else paler(*PEERS[title])
            for title, column in results["columns"].items()}


def paler(colour, marker):
    return tuple(0.75 * part + 0.25 for part in to_rgb(colour)), marker


def type_words(entry):
    return "" if entry["type"] == "float32" else " " + SHORT[entry["type"]]


def is_ours(results, title):
    return results["columns"][title]["isa"] is not None


def label(entry):
    """Returns the label of a workload in three short lines. For attention and layers, the first line has the name and
    the kind, the second line the lengths, and the third line the dim and any type but float32. For a linear map, the
    lines are the name, the rows, and the sizes of the matrix. Of the name, only the part before the first _ is
    shown."""
    parts = entry["shape"].split("_")
    if parts[0][0] == "R":
        rows, in_dim, out_dim = (part[1:] for part in parts)
        return f"{entry['name'].split('_')[0]}\n{rows}\n{in_dim}×{out_dim}"
    lengths = next(part for part in parts if part[0] == "L")[1:].replace("x", "×")
    dim = next(part for part in parts if part[0] == "D")
    kind = "decode" if entry["roof"]["kind"] == "read" else \
        next((word for part, word in KINDS.items() if part in parts), "full")
    return f"{entry['name'].split('_')[0]} {kind}\n{lengths}\n{dim}{type_words(entry)}"


# --------------------------------------------------------------------------------- the bars


def bars(axes, results, entries):
    titles, colours = list(results["columns"]), looks(results)
    width = 0.84 / len(titles)
    for i, title in enumerate(titles):
        for x, entry in enumerate(entries):
            at = x + (i - (len(titles) - 1) / 2) * width
            bar(axes, at, width, entry["results"][title], colours[title][0], is_ours(results, title))
    axes.set_xticks(range(len(entries)), [label(e) for e in entries], fontsize=9)
    axes.set_xlim(-0.55, len(entries) - 0.45)
    highest = max(e["results"][t].get("percent", 0) for e in entries for t in titles)
    axes.set_ylim(0, max(100, 1.06 * highest))
    axes.set_yticks(range(0, 101, 20), [f"{y} %" for y in range(0, 101, 20)])
    axes.tick_params(axis="x", length=0)
    axes.grid(axis="y", color=FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    separate_decode(axes, entries)


def bar(axes, at, width, result, colour, ours):
    if "percent" not in result:
        word = {"wrong": "wrong", "cannot": "cannot"}.get(result["status"], "")
        axes.text(at, 1, word, rotation=90, ha="center", va="bottom", fontsize=7, color=INK)
        return
    percent = result["percent"]
    axes.bar(at, percent, width * 0.92, color=colour,
             edgecolor=INK if ours else "none", linewidth=0.8)
    axes.text(at, percent + 0.8, f"{percent:.0f}", ha="center", va="bottom", fontsize=7 if ours else 6.5,
              fontweight="bold" if ours else "normal", color=INK if ours else "#666666")


def separate_decode(axes, entries):
    """Draws a line before the workloads whose roof is the reading of memory. These workloads come last."""
    decode = [entry["roof"]["kind"] == "read" for entry in entries]
    if any(decode) and not all(decode):
        axes.axvline(decode.index(True) - 0.5, color="#888888", linewidth=1, linestyle=(0, (4, 3)))


# ----------------------------------------------------------------------------- the roofline


def roof_speed(entries, kind):
    speeds = sorted(e["roof"]["speed"] for e in entries if e["roof"]["kind"] == kind)
    return speeds[len(speeds) // 2] if speeds else None


def intensity(entry):
    return entry["flops"] / (entry["cold_bytes"] if entry["roof"]["kind"] == "read" else entry["bytes"])


def roofline(axes, results, entries):
    fma, read = roof_speed(entries, "fma"), roof_speed(entries, "read")
    xs = [intensity(entry) for entry in entries]
    left, right = min([0.9, *xs]) / 1.6, max(xs) * 2.2
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(left, right)
    draw_points(axes, results, entries)
    low, high = axes.get_ylim()
    top = min(roof for roof in (fma, read and read * right) if roof) / 1e9
    axes.set_ylim(low / 7, max(high, 1.6 * top))  # room for the names below the points
    draw_roofs(axes, fma, read, left, right)
    name_points(axes, entries)
    axes.set_xlabel("arithmetic intensity: FLOP per byte of inputs and outputs, each moved once")
    axes.set_ylabel("GFLOP/s")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(FixedLocator([1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]))
    axes.grid(axis="y", color=FAINT, linewidth=0.8)
    axes.set_axisbelow(True)


def draw_roofs(axes, fma, read, left, right):
    ridge = fma / read if fma and read else left
    if read:
        end = ridge if fma else right
        axes.plot([left, end], [read * left / 1e9, read * end / 1e9], color=INK, linewidth=1.6)
    if fma:
        axes.plot([ridge, right], [fma / 1e9] * 2, color=INK, linewidth=1.6)
        axes.text(right, fma / 1e9 * 1.06, f"{fma / 1e9:.0f} GFLOP/s of multiply-adds  ", ha="right",
                  va="bottom", fontsize=8.5)
    if read:
        ends = [(left, read * left / 1e9), (2 * left, 2 * read * left / 1e9)]
        (x0, y0), (x1, y1) = axes.transData.transform(ends)
        axes.annotate(f"{read / 1e9:.0f} GB/s from memory", ends[0], xytext=(4, 8),
                      textcoords="offset points", fontsize=8.5, rotation_mode="anchor",
                      rotation=math.degrees(math.atan2(y1 - y0, x1 - x0)))


def draw_points(axes, results, entries):
    colours = looks(results)
    for title in reversed(list(results["columns"])):
        ours = is_ours(results, title)
        points = [(intensity(e), e["flops"] / e["results"][title]["seconds"] / 1e9)
                  for e in entries if "seconds" in e["results"][title]]
        if points:
            axes.scatter(*zip(*points), s=44 if ours else 26, color=colours[title][0],
                         marker=colours[title][1], zorder=4 if ours else 3,
                         edgecolors=INK if ours else "#666666", linewidths=0.8 if ours else 0.4)


def name_points(axes, entries):
    """Writes the names of the workloads vertically below their points. Workloads of about equal intensity share a
    place, in which each type has a line."""
    places = {}
    for entry in entries:
        x = next((x for x in places if abs(x / intensity(entry) - 1) < 0.12), intensity(entry))
        places.setdefault(x, {}).setdefault(type_words(entry), []).append(without_type(entry))
    for x, by_type in places.items():
        lines = [joined(names) + words for words, names in by_type.items()]
        axes.axvline(x, color=FAINT, linewidth=0.8, zorder=0)
        axes.text(x, 0.02, "\n".join(lines), transform=axes.get_xaxis_transform(), rotation=90, ha="center",
                  va="bottom", fontsize=8, color="#555555",
                  bbox={"facecolor": "white", "edgecolor": "none", "pad": 1}, zorder=1)


def without_type(entry):
    return entry["name"].removesuffix("_" + SHORT[entry["type"]])


def joined(names):
    """Joins names. Makes 'W5 4096, 16384' from W5_4096 and W5_16384."""
    words, before = [], None
    for name in names:
        first, *rest = name.split("_")
        words.append(" ".join(rest if first == before else [first, *rest]))
        before = first
    return ", ".join(words)


# ------------------------------------------------------------------------------ a small call


def small_call(axes, results, entry):
    titles, colours = list(results["columns"]), looks(results)
    timed = [t for t in titles if "seconds" in entry["results"][t]]
    longest = max(entry["results"][t]["seconds"] for t in timed) * 1e6
    for y, title in enumerate(timed):
        ours, us = is_ours(results, title), entry["results"][title]["seconds"] * 1e6
        axes.barh(y, us, 0.72, color=colours[title][0],
                  edgecolor=INK if ours else "none", linewidth=0.8)
        axes.text(us + longest * 0.02, y, f"{us:.1f}", va="center", fontsize=9,
                  fontweight="bold" if ours else "normal")
    axes.set_yticks(range(len(timed)), timed)
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0, 1.14 * longest)
    axes.set_xlabel("µs, called from Python; shorter is better")
    axes.invert_yaxis()


# ---------------------------------------------------------------------------------- the page


def key(figure, results):
    colours = looks(results)
    handles = [Line2D([], [], color=colours[title][0], marker=colours[title][1], linestyle="",
                      markersize=10, markeredgecolor=INK if is_ours(results, title) else "none",
                      label=title) for title in results["columns"]]
    legend = figure.legend(handles=handles, loc="upper right", bbox_to_anchor=(0.98, 0.99),
                           ncols=(len(handles) + 1) // 2, frameon=False, handletextpad=0.3,
                           columnspacing=1.6)
    for words in legend.get_texts():
        words.set_fontweight("bold" if is_ours(results, words.get_text()) else "normal")


def title(figure, results):
    machine, threads = results["machine"], results["threads"]
    figure.text(0.03, 0.98, f"Attention on one CPU: {', '.join(types(results))}", fontsize=15,
                fontweight="bold", va="top")
    figure.text(0.03, 0.945, f"{machine['cpu']}, {threads} thread{'s' * (threads > 1)}, "
                f"{results['date'][:10]}; medians of {results['rounds']} interleaved rounds",
                fontsize=9.5, va="top", color="#555555")


def page(figure, results):
    """Draws the page: the bars at the top and the roofline below them. If the smallest call was measured, its times are
    to the right of the roofline. Returns whether there is anything to draw."""
    entries = [e for e in results["workloads"] if not e["tiny"] and e["roof"]["speed"]]
    entries.sort(key=lambda e: e["roof"]["kind"] == "read")
    tiny = next((e for e in results["workloads"] if e["tiny"] and is_timed(e)), None)
    grid = figure.add_gridspec(2, 2, left=0.065, right=0.98, top=0.875, bottom=0.07, hspace=0.36,
                               wspace=0.3, height_ratios=[1, 1.05], width_ratios=[2, 1])
    if entries:
        axes = figure.add_subplot(grid[0, :])
        bars(axes, results, entries)
        axes.set_title(heading(entries))
    timed = [e for e in entries if is_timed(e)]
    if timed:
        axes = figure.add_subplot(grid[1, 0 if tiny else slice(None)])
        roofline(axes, results, timed)
        axes.set_title("Roofline")
    if tiny:
        axes = figure.add_subplot(grid[1, 1] if entries else grid[:, :])
        small_call(axes, results, tiny)
        axes.set_title(f"The smallest call: {tiny['name']}, {tiny['shape'].replace('_', ' ')}")
    return bool(entries or tiny)


def is_timed(entry):
    return any("seconds" in result for result in entry["results"].values())


def heading(entries):
    kinds = {entry["roof"]["kind"] for entry in entries}
    words = {"fma": "of the multiply-adds", "read": "of the memory reads"}
    what = words[kinds.pop()] if len(kinds) == 1 else "of the multiply-adds (for decode: of the memory reads)"
    return f"Percent {what} that this machine can do: higher is better"


def draw(results, prefix):
    """Writes prefix.png and prefix.svg, each whole or not at all. Returns the names of the written files. If there is
    nothing to draw, the list of names is empty."""
    written = []
    with plt.rc_context(STYLE):
        figure = plt.figure(figsize=(14.5, 9.4))
        if page(figure, results):
            title(figure, results)
            key(figure, results)
            written = [save(figure, f"{prefix}.{kind}", kind) for kind in ("png", "svg")]
        plt.close(figure)
    return written


def save(figure, path, kind):
    with whole(path) as part:
        figure.savefig(part, dpi=DPI, format=kind, facecolor="white")
    return path
