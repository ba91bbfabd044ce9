# SPDX-License-Identifier: Apache-2.0
"""Compares attnkit with other libraries by the results of tools/peers.py. Draws a bar for each column of the table that
tools/peers.py prints."""

import math

import results
from figure import Figure

CARD = 360


def read(path):
    """Returns the content of a file that `tools/peers.py --json` wrote."""
    return results.read_json(path, "tools/peers.py", checked)


def checked(content):
    """Returns the content unchanged. Raises an exception if the page needs something that is missing or wrong in the
    content. read_json turns the exception into Unusable."""
    isas = [column["isa"] for column in content["columns"].values()]
    words, numbers = [content["date"], content["machine"]["cpu"]], [content["threads"]]
    for entry in content["workloads"]:
        words += [entry["name"], entry["shape"], entry["type"], entry["roof"]["kind"]]
        words += [entry["results"][title]["status"] for title in content["columns"]]
        is_timed(entry)
        numbers += [entry["results"][title].get(key) for title in content["columns"]
                    for key in ("percent", "seconds")]
    if not all(isinstance(word, str) for word in words) or not any(isas):
        raise ValueError("a name, date, type or status is not a text, or attnkit is not among the libraries")
    if any(number is not None and not 0 < number < math.inf for number in numbers):
        raise ValueError("a percentage or a time is not a positive number")
    return content


def is_timed(entry):
    """Returns whether the time of a call is shown instead of a percentage, because the call is too small to be compared
    with a roof, or the roof is unknown."""
    return entry["tiny"] or not entry["roof"]["speed"]


def lead(columns, entry):
    """Returns the speed of the fastest column of attnkit divided by the speed of the fastest other library, or None if
    one of these speeds is missing."""
    times = {ours: [entry["results"][title].get("seconds") for title, column in columns.items()
                    if bool(column["isa"]) == ours] for ours in (True, False)}
    best = {ours: min(filter(None, of_them), default=None) for ours, of_them in times.items()}
    return best[False] / best[True] if best[True] and best[False] else None


def bars(columns, entry):
    """Draws a bar for each column: its percentage of the roof, or its time if is_timed(). A column without such a
    figure has its status instead of a bar. Columns with the status 'none' are left out."""
    tiny = is_timed(entry)
    figures = {title: result.get("seconds" if tiny else "percent")
               for title, result in entry["results"].items() if title in columns and result["status"] != "none"}
    longest = max([100.0 * (not tiny), *(value for value in figures.values() if value)])
    height, step = 8 + 23 * len(figures), 23
    figure = Figure(CARD, height, (4, 62, 4, 112), (0, longest or 1), (0, 1),
                    f"{entry['name']}, {entry['shape']}: " + ", ".join(
                        f"{title} {value_words(value, tiny)}" for title, value in figures.items()))
    if not tiny:
        figure.path([(figure.x(100), figure.top), (figure.x(100), figure.bottom)], "grid")
    for i, (title, value) in enumerate(figures.items()):
        ours = "ours" if columns[title]["isa"] else "peer"
        y = 4 + step * i
        figure.text(figure.left - 7, y + 15, title, "name " + ours, "end")
        if value:
            figure.rect(figure.left, y + 3, figure.x(value) - figure.left, step - 7, "bar " + ours, title)
        figure.text((figure.x(value) if value else figure.left) + 6, y + 15,
                    value_words(value, tiny) if value else entry["results"][title]["status"], "value " + ours)
    return figure.svg()


def value_words(value, tiny):
    return "none" if not value else f"{value * 1e6:.1f} µs" if tiny else f"{value:.0f} %"
