# SPDX-License-Identifier: Apache-2.0
"""Draws the plots of a history. A plot over the runs shows what percentage of the roof is reached in each run, by one
row or by each row of a family. The other plot is the roofline of an instruction set. A fall is an orange triangle that
points down. A rise is a green triangle that points up. Readers can tell falls from rises without the colours.
"""

from statistics import median

from figure import Figure, decades, ticks

MARKERS = {"prefill": "circle", "few": "up", "decode": "square", "linear": "diamond", "layer": "cross"}
MARKS = {"fall": "down", "rise": "up"}
CARD = 360  # width of a small plot
NOTE = 14   # height of a line of notes


def percent(value):
    return f"{value:.0f} %"


def signed(step):
    """Returns a text such as +3.1 %. Negative numbers have a minus sign instead of a hyphen."""
    return f"{100 * step:+.1f} %".replace("-", "−")


def bounds(values):
    """Returns the ends of a percentage axis, which is never so short that noise looks like a step."""
    low, high = min(values), max(values)
    missing = max(0.0, 12 - (high - low)) / 2
    return max(0.0, low - missing - 1), high + missing + 2


# ---------------------------------------------------------------------- plots over the runs


def timeline(machine, values, words, height, notes=1):
    """Returns a figure whose x axis is the runs, with room for `notes` lines of notes at its top."""
    last, top = max(1, len(machine.runs) - 1), 2 + NOTE * max(1, notes)
    height += NOTE * max(0, notes - 1)
    figure = Figure(CARD, height, (top, 12, 34, 44), (0, last), bounds(values), words)
    figure.rows(ticks(*bounds(values)), percent)
    first, newest = machine.runs[0], machine.last
    figure.text(figure.left, height - 18, run_words(first), "tick")
    if first is not newest:
        figure.text(figure.right, height - 18, run_words(newest), "tick", "end")
        figure.text(figure.left, height - 4, f"{first.date:%Y-%m-%d}", "tick")
    figure.text(figure.right, height - 4, f"{newest.date:%Y-%m-%d}", "tick", "end")
    return figure


def run_words(run):
    return run.commit.removesuffix("-dirty")[:7]


def of_row(machine, series):
    """Draws a row: its points (hollow: disturbed), the levels between changes, and the changes."""
    words = f"Percent of the roof of {series.name} over {len(series.points)} runs"
    good = [p for p in series.points if p.undisturbed]
    figure = timeline(machine, [p.percent for p in good or series.points], words, 168, len(series.changes))
    # Each note has its own line, because the notes of successive changes would overlap.
    for draw in draw_change_line, draw_change_note:
        for i, change in enumerate(series.changes):
            draw(figure, change, NOTE * i + 10)
    figure.line([(p.run, p.percent) for p in good], "thin")
    for first, last, level in series.levels:
        figure.line([(first - 0.3 * (first > 0), level), (last, level)], "level")
    for point in series.points:
        run = machine.runs[point.run]
        y = min(max(figure.y(point.percent), figure.top), figure.bottom)  # a disturbed run may be outside of the plot
        figure.mark(figure.x(point.run), y, "circle",
                    "point" if point.undisturbed else "point hollow",
                    f"{run.commit}, {run.date:%Y-%m-%d}: {point.percent:.1f} %"
                    + ("" if point.undisturbed else ", disturbed"), 3.2)
    return figure.svg()


def kind(change):
    return "fall" if change.step < 0 else "rise"


def draw_change_line(figure, change, y):
    x = figure.x(change.run - 0.5)
    figure.path([(x, y), (x, figure.bottom)], "change " + kind(change))


def draw_change_note(figure, change, y):
    x = figure.x(change.run - 0.5)
    side = -1 if x > 0.6 * figure.width else 1
    figure.mark(x, y, MARKS[kind(change)], kind(change), size=5)
    figure.text(x + 9 * side, y + 4, f"{signed(change.step)} at {change.commit[:7]}", "note " + kind(change),
                "end" if side < 0 else "start")


def of_family(machine, all_series, words):
    """Draws a line for each row, and a triangle at each change. The line of a row is stronger if the row changed. The
    line is dashed if all runs of the row were disturbed."""
    shown = {series.name: [p for p in series.points if p.undisturbed] or series.points for series in all_series}
    figure = timeline(machine, [p.percent for points in shown.values() for p in points], words, 210)
    for series in sorted(all_series, key=lambda s: len(s.changes)):
        line = [(p.run, p.percent) for p in shown[series.name]]
        disturbed = "" if series.levels else " disturbed"
        title = f"{series.name}: {series.now:.1f} %{',' * bool(disturbed)}{disturbed}"
        figure.line(line, "thin" + " changed" * bool(series.changes) + disturbed, title)
        for x, y in line if len(line) == 1 or disturbed else []:
            figure.mark(figure.x(x), figure.y(y), "circle", "point" + " hollow" * bool(disturbed), title, 3.2)
    for change in (change for series in all_series for change in series.changes):
        figure.mark(figure.x(change.run), figure.y(change.after), MARKS[kind(change)], kind(change),
                    f"{change.row}: {signed(change.step)} at {change.commit}", 5)
    return figure.svg()


# ----------------------------------------------------------------------------- the roofline


def roof_points(run, isa):
    """Yields (row, FLOP per byte, GFLOP/s) of the calls on one thread. Speeds are in processor time, like the
    percentages, because wall time would include the work of other programs."""
    for row in run.rows.values():
        intensity, percents = row.median("FLOP_per_byte"), row.median("roof_pct")
        fma, read = row.median("roof_GFLOPS"), row.median("roof_GBps")
        if row.isa == isa and row.threads == 1 and intensity and percents and (fma or read):
            yield row, intensity, percents / 100 * (fma or read * intensity)


def roof(run, isa, key):
    """Returns the median of the figure `key`, a roof, over the rows of this instruction set on one thread, or None."""
    speeds = [row.median(key) for row in run.rows.values() if row.isa == isa and row.threads == 1]
    speeds = [speed for speed in speeds if speed]
    return median(speeds) if speeds else None


def of_roofs(run, isa):
    """Draws the roofline. Returns None if the run has no calls to show, or lacks a roof."""
    points = list(roof_points(run, isa))
    fma, read = roof(run, isa, "roof_GFLOPS"), roof(run, isa, "roof_GBps") or roof_of_memory(run)
    if not points or not fma or not read:
        return None
    left = min(0.5, *(x for _, x, _ in points)) / 1.3
    right = max(1000.0, *(x for _, x, _ in points)) * 1.3
    low = min(read * left, *(y for _, _, y in points)) / 1.4
    figure = Figure(440, 340, (14, 14, 44, 52), (left, right, "log"), (low, 2 * fma, "log"),
                    f"Roofline of {isa}: {len(points)} calls under {fma:.0f} GFLOP/s and {read:.0f} GB/s")
    figure.rows(decades(low, 2 * fma), lambda tick: f"{tick:g}")
    for tick in decades(left, right):
        figure.text(figure.x(tick), figure.bottom + 16, f"{tick:g}", "tick", "middle")
    draw_roofs(figure, fma, read, left, right)
    for row, x, y in points:
        figure.mark(figure.x(x), figure.y(y), MARKERS.get(row.family, "circle"), "dot " + row.family,
                    f"{row.name}: {y:.1f} GFLOP/s, {row.median('roof_pct'):.0f} % of its roof", 5)
    return figure.svg()


def roof_of_memory(run):
    return run.rows["read/dram"].median("roof_GBps") if "read/dram" in run.rows else None


def draw_roofs(figure, fma, read, left, right):
    ridge = fma / read
    figure.line([(left, read * left), (ridge, fma), (right, fma)], "roof")
    figure.text(figure.right - 2, figure.y(fma) - 7, f"{fma:.0f} GFLOP/s of multiply-adds", "note", "end")
    x, y = figure.x(left), figure.y(read * left)
    figure.text(x + 4, figure.top + 12, "GFLOP/s", "tick")
    figure.text(figure.right, figure.bottom + 34, "FLOP for each byte of inputs and outputs", "tick",
                "end")
    # The label is to the right of the slope, a sixth of the way up.
    x, y = x + (figure.x(ridge) - x) / 6, y - (y - figure.y(fma)) / 6
    figure.text(x + 12, y + 6, f"{read:.1f} GB/s from memory", "note")
