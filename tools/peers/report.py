# SPDX-License-Identifier: Apache-2.0
"""Makes the table of tools/peers.py, for a terminal and as Markdown, with the notes that are needed to judge it."""

import textwrap

from columns import MODES

WIDTH = 108
UNITS = {"fma": (1e9, "GFLOP/s"), "read": (1e9, "GB/s")}


def short_time(seconds):
    for unit, size in (("s", 1), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size or unit == "µs":
            number = seconds / size
            return f"{number:.1f} {unit}" if number < 100 else f"{number:.0f} {unit}"


def speed(value, kind):
    size, unit = UNITS[kind]
    return f"{value / size:.3g} {unit}"


class Notes:
    """Numbered notes below the table. Equal notes have one number."""

    def __init__(self):
        self.reasons = []

    def number(self, reason):
        if reason not in self.reasons:
            self.reasons.append(reason)
        return self.reasons.index(reason) + 1


def cell(entry, result, notes):
    if result["status"] == "none":
        return ""
    if result["status"] == "cannot":
        return f"cannot [{notes.number(result['reason'])}]"
    if result["status"] == "wrong":
        return f"WRONG {result['error']:.0e}"
    mark = " ~" if result["disturbed"] else ""
    if entry["tiny"]:
        return short_time(result["seconds"]) + mark
    if "percent" in result:
        return f"{result['percent']:.0f} %" + mark
    return speed(result["speed"], entry["roof"]["kind"]) + mark


def full(entry):
    """Returns a text with the speed of the roof, which is 100 %. Returns "" if the workload has no percentages."""
    if entry["tiny"] or not entry["roof"]["speed"]:
        return ""
    return speed(entry["roof"]["speed"], entry["roof"]["kind"])


def types(results):
    """Returns the types of the workloads, each once."""
    return list(dict.fromkeys(entry["type"] for entry in results["workloads"]))


def errors(results, type):
    """Returns a row with the largest error of each column over all workloads of a type."""
    row = [f"largest error, {type}", ""]
    for title in results["columns"]:
        found = [e["results"][title]["error"] for e in results["workloads"]
                 if e["type"] == type and "error" in e["results"][title]]
        row.append(f"{max(found):.0e}" if found else "")
    return row + ["", ""]


def rows(results, notes):
    """Returns the rows of the table as lists of texts. The first row is the header."""
    titles = list(results["columns"])
    table = [["workload", "roof", *titles, "best peer", "attnkit / best"]]
    for entry in results["workloads"]:
        ratio = f"{entry['ratio']:.2f}x" if entry["ratio"] else ""
        table.append([f"{entry['name']} {entry['shape']}", full(entry),
                      *(cell(entry, entry["results"][title], notes) for title in titles),
                      entry["best_peer"] or "", ratio])
    return table + [errors(results, type) for type in types(results)]


# --------------------------------------------------------------------------------- the words


def forms_of(results, title):
    """Returns the measured forms of a column, such as 'Attention (W1, W7); GroupQueryAttention (W3_512)', or '' if
    there was no choice of forms."""
    used, choice = {}, False
    for entry in results["workloads"]:
        result = entry["results"][title]
        choice = choice or len(result.get("forms", ())) > 1
        if "seconds" in result:
            used.setdefault(result["form"], []).append(entry["name"])
    choice = choice or len(used) > 1
    return "; ".join(f"{form} ({', '.join(names)})" for form, names in used.items() if choice)


def heading(results):
    machine, threads = results["machine"], results["threads"]
    versions = [f"{title} {column['version']}" for title, column in results["columns"].items()
                if column["version"]]
    return [f"{machine['cpu']}, {machine['cpus']} processors; {threads} "
            f"thread{'s' * (threads > 1)}, {', '.join(types(results))}; {results['date'][:10]}; "
            f"medians of {results['rounds']} rounds"
            f"{', in processor time' * results['processor_time']}.",
            "; ".join(versions) + "."]


def explanation(results):
    words = ["The figures are percent of the roof, and higher is better. The roof is the number of float32 "
             "multiply-adds that this machine can do in a second. For a single row (L1x..., R1), it is the number of "
             "bytes of memory that this machine can read in a second. Both roofs are measured between the rounds."]
    if any(entry["tiny"] for entry in results["workloads"]):
        words.append("The smallest workload has the time of a call from Python instead.")
    if results["roofs_missing"]:
        words = [f"No percents: the roofs come from attnkit bench, which says: "
                 f"{results['roofs_missing']}. The table has speeds instead."]
    words.append("The last column is the speed of attnkit's fastest column divided by the speed of the best peer. "
                 "Errors are the largest absolute differences from a float64 oracle.")
    modes = [title for title in results["columns"] if title.partition(" ")[2] in MODES]
    if modes:
        words.append(f"The columns {', '.join(modes)} are calls with flags, which give other bits. They are empty "
                     "where the flags do not apply.")
    if any(r.get("disturbed") for e in results["workloads"] for r in e["results"].values()):
        words.append("~: the threads of these calls waited for a processor for over 3 % of their time.")
    if forms(results):
        words.append("If a library can express a workload in several forms, its fastest correct form counts:")
    return " ".join(words)


def forms(results):
    used = [(title, forms_of(results, title)) for title in results["columns"]]
    return [f"{title}: {text}." for title, text in used if text]


# ------------------------------------------------------------------------------- the reports


def two_lines(cell):
    """Splits the title of a column into two lines, such as 'ONNX' and 'Runtime'."""
    first, _, second = cell.partition(" ")
    return (first, second) if second else ("", first)


def aligned(table):
    """Returns the lines of a table. The columns of workloads and of best peers are aligned to the left, all other
    columns to the right."""
    header = [two_lines(cell) for cell in table[0]]
    table = [[upper for upper, _ in header], [lower for _, lower in header], *table[1:]]
    widths = [max(map(len, column)) for column in zip(*table)]
    lines = []
    for row in table:
        cells = [value.ljust(width) if i in (0, len(row) - 2) else value.rjust(width)
                 for i, (value, width) in enumerate(zip(row, widths))]
        lines.append("  ".join(cells).rstrip())
    return lines[:2] + ["-" * max(map(len, lines))] + lines[2:]


def text(results):
    notes = Notes()
    lines = aligned(rows(results, notes))
    words = [*heading(results), explanation(results), *forms(results)]
    words += [f"[{i + 1}] {reason}" for i, reason in enumerate(notes.reasons)]
    folded = [textwrap.fill(word, WIDTH, subsequent_indent="    ") for word in words]
    return "\n".join(["", *lines, "", *folded])


def bold_best(cells, entry, titles):
    """Makes the cell of the fastest column bold."""
    times = {t: entry["results"][t]["seconds"] for t in titles if "seconds" in entry["results"][t]}
    if times:
        best = 2 + titles.index(min(times, key=times.get))
        cells[best] = f"**{cells[best]}**"


def markdown(results):
    notes, titles = Notes(), list(results["columns"])
    header, *body = rows(results, notes)
    for cells, entry in zip(body, results["workloads"]):
        bold_best(cells, entry, titles)
    rules = ["---"] + ["---:"] * (len(header) - 3) + ["---", "---:"]
    lines = ["| " + " | ".join(row) + " |" for row in (header, rules, *body)]
    words = "\n".join([*heading(results), explanation(results)])
    lines += ["", textwrap.fill(words, WIDTH), ""]
    lines += [textwrap.fill(f"- {word}", WIDTH, subsequent_indent="  ") for word in forms(results)]
    if notes.reasons:
        lines += [""] + [f"[{i + 1}] {reason}  " for i, reason in enumerate(notes.reasons)]
    return "\n".join(lines) + "\n"
