# SPDX-License-Identifier: Apache-2.0
"""Makes the page, a self-contained HTML file without scripts. Results that need attention come first."""

import re
from html import escape
from pathlib import Path

import changes
import others
import plots
import results
from figure import Figure

STYLE = Path(__file__).with_name("style.css")
TITLE = "How near attnkit is to the roof"
UNKNOWN = "Unknown CPU"


# ------------------------------------------------------------------------------------ words


def count(number, thing):
    return f"{number} {thing}{'' if number == 1 else 's'}"


def code(text):
    return f"<code>{breakable(text)}</code>"


def share(percent):
    return f"{percent:.1f}&#160;%"


def step(value):
    return f'<span class="{"fall" if value < 0 else "rise"}">{"▼" if value < 0 else "▲"}&#160;' \
           f'{plots.signed(value).replace(" ", "&#160;")}</span>'


def breakable(name):
    """Returns a name as HTML, in which a line may break after / and _."""
    return re.sub(r"([/_])", r"\1<wbr>", escape(name))


def days(runs):
    first, last = min(run.date for run in runs), max(run.date for run in runs)
    return f"{first:%Y-%m-%d}" + (f" to {last:%Y-%m-%d}" if first.date() != last.date() else "")


def cell(words, name="", kind=""):
    """Returns a cell of a table. The cell has the name of its column as an attribute, because narrow windows show the
    cells below each other."""
    attributes = f' class="{kind}"' if kind else ""
    return f"<td{attributes}" + (f' data-is="{escape(name)}"' if name else "") + f">{words}</td>"


def table(heads, rows):
    """Returns a table. `heads` are pairs (words, class), and `rows` are lists of cells."""
    head = "".join(f'<th class="{of}">{words}</th>' if of else f"<th>{words}</th>" for words, of in heads)
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return (f'<div class="scroll"><table class="stack"><thead><tr>{head}</tr></thead>'
            f'<tbody>{body}</tbody></table></div>')


def card(words, more, svg):
    """Returns a card. `more` is text to the right of the words, or on a separate line if it is muted."""
    return f"<figure><figcaption><b>{words}</b>{more}</figcaption>{svg}</figure>"


def muted(text):
    return f'<span class="muted">{text}</span>'


# ---------------------------------------------------------------------------------- summary


def summary(machines):
    runs = [run for machine in machines for run in machine.runs]
    found = [change for machine in machines for change in machine.changes]
    numbers = [("Runs", len(runs), ""), ("Machines", len(machines), ""),
               ("Commits", len({run.commit for run in runs}), ""),
               ("Rows", len({row for machine in machines for row in machine.series}), ""),
               ("Open regressions", sum(change.is_open for change in found),
                "fall" if any(change.is_open for change in found) else ""),
               ("Rises", sum(change.step > 0 for change in found),
                "rise" if any(change.step > 0 for change in found) else "")]
    items = "".join(f'<div class="{kind}"><dt>{words}</dt><dd>{number}</dd></div>'
                    for words, number, kind in numbers)
    return (f"<header><h1>{TITLE}</h1><p class=\"muted\">{count(len(runs), 'run')} of "
            f"<code>attnkit bench</code>, {days(runs)}. A percentage is the speed of a row in percent of its "
            "roof on the same machine at the same time. The roof is the multiply-adds or, for decode and for few rows "
            "of linear maps and layers, the memory reads."
            f'</p><dl class="counts">{items}</dl></header>' + machine_table(machines))


def machine_table(machines):
    heads = [("Machine", ""), ("Runs", "n"), ("Newest run", ""), ("Commit", ""), ("Compiler", ""),
             ("Roofs of the newest run, one thread", "")]
    rows = [[cell(f"<b>{escape(machine.name or UNKNOWN)}</b>"), cell(str(len(machine.runs)), "runs", "n"),
             cell(f"{machine.last.date:%Y-%m-%d %H:%M}", "newest run", "keep"),
             cell(code(machine.last.commit), "commit", "keep"),
             cell(escape(machine.last.context.get("compiler", "unknown")), "compiler", "keep"),
             cell(roofs(machine.last), "roofs", "full")] for machine in machines]
    return table(heads, rows)


def roofs(run):
    speeds = {row.isa: row.median("roof_GFLOPS") for row in run.rows.values() if row.family == "fma"}
    words = [f"{isa} {speed:.3g} GFLOP/s" for isa, speed in speeds.items() if isa and speed]
    memory = plots.roof_of_memory(run)
    words += [f"memory {memory:.1f} GB/s"] if memory else []
    return ", ".join(escape(word).replace(" ", "&#160;") for word in words) or "not measured"


# ------------------------------------------------------------------------------ regressions


def regressions(machines):
    """Returns the section of regressions: first the open regressions, then the regressions whose lost speed came back.
    In each of these two groups, the worst regression comes first."""
    falls = [change for machine in machines for change in machine.changes if change.step < 0]
    falls.sort(key=lambda change: (not change.is_open, change.step))
    if not falls:
        words = "None was found." if able(machines) else "Nothing can be said yet."
        return section("Worst regressions", f"<p>{words} {judged(machines)}</p>")
    heads = [("Row", ""), ("Before", "n"), ("After", "n"), ("Change", "n"), ("Now", "n"), ("Since commit", ""),
             ("State", "")]
    rows = [regression(change, len(machines) > 1) for change in falls]
    return section("Worst regressions", f"<p class=\"muted\">Medians of the runs before the change and after it. "
                   f"{judged(machines)}</p>" + table(heads, rows))


def regression(change, say_machine):
    return [cell(code(change.row) + (f"<br>{muted(escape(change.machine))}" if say_machine else "")),
            cell(share(change.before), "before", "n"), cell(share(change.after), "after", "n"),
            cell(step(change.step), "", "n"), cell(share(change.now), "now", "n"),
            cell(f"{code(change.commit)} {muted(f'{change.date:%Y-%m-%d}')}", "since"),
            cell("open" if change.is_open else "came back")]


def able(machines):
    """Returns the number of rows with enough undisturbed runs to be judged."""
    return sum(sum(p.undisturbed for p in series.points) >= changes.LEAST_RUNS
               for machine in machines for series in machine.series.values())


def judged(machines):
    rows = sum(len(machine.series) for machine in machines)
    return (f"{able(machines)} of {count(rows, 'row')} {'has' if able(machines) == 1 else 'have'} the "
            f"{changes.LEAST_RUNS} undisturbed runs that are needed to tell a change from noise. A change of less than "
            f"{plots.percent(100 * changes.LEAST_STEP)} does not count.")


# ------------------------------------------------------------------------------ one machine


def of_machine(machine):
    return section(escape(machine.name or UNKNOWN),
                   over_runs(machine) + rooflines(machine) + newest(machine))


def over_runs(machine):
    if len(machine.runs) < 2:
        return ""
    changed = sorted((s for s in machine.series.values() if s.changes),
                     key=lambda s: min(change.step for change in s.changes))
    cards = [card(breakable(s.name), f"<span>{share(s.now)}</span>", plots.of_row(machine, s))
             for s in changed]
    words = ("Percent of the roof. Dots are runs (hollow: disturbed), the strong line is the level between "
             "changes, and ▼ and ▲ mark where the level fell or rose.")
    rows = part("Rows that changed", words, cards) if cards else ""
    return rows + part("All rows over commits, by family",
                       "Percent of the roof: a line for each row. The line is stronger if the row changed, and "
                       "dashed if every run of the row was disturbed.", families(machine))


def part(heading, words, cards, kind="cards", key=""):
    return (f'<h3>{heading}</h3><p class="muted">{words}</p>{key}'
            f'<div class="{kind}">{"".join(cards)}</div>')


def families(machine):
    groups = {}
    for series in machine.series.values():
        key = results.family(series.name), results.isa(series.name) or ""
        groups.setdefault(key, []).append(series)
    cards = []
    for (family, isa), group in sorted(groups.items()):
        words = f"{family} {isa}: percent of the roof of {count(len(group), 'row')}"
        cards.append(card(f"{escape(family)} <code>{escape(isa)}</code>", muted(count(len(group), "row")),
                          plots.of_family(machine, group, words)))
    return cards


def rooflines(machine):
    isas = machine.last.context.get("isas", "").split()
    drawn = [(isa, plots.of_roofs(machine.last, isa)) for isa in isas]
    cards = [card(f"<code>{escape(isa)}</code>", "", svg) for isa, svg in drawn if svg]
    if not cards:
        return ""
    words = (f"The calls of the newest run on one thread, {code(machine.last.commit)}, under the two roofs "
             "of the machine: multiply-adds alone, and memory reads alone. Calls whose data fit into caches can "
             "be above the slope.")
    return part("Rooflines", words, cards, "cards wide", family_key())


def family_key():
    items = []
    for family, shape in plots.MARKERS.items():
        figure = Figure(14, 14, (0, 0, 0, 0), (0, 1), (0, 1), family)
        figure.mark(7, 7, shape, "dot " + family, size=5.5)
        items.append(f"<li>{figure.svg()}{family}</li>")
    return f'<ul class="key">{"".join(items)}</ul>'


def newest(machine):
    """Shows the rows of the newest run that have a series. The list is open if there is a single run, because then the
    page shows no changes."""
    rows = [row for row in machine.last.rows.values() if row.name in machine.series]
    shown = "".join(
        f"<h4>{escape(family)}</h4>" + table(
            [("Row", ""), ("Of its roof", "n"), ("", "meter"), ("Time of a call", "n")],
            [newest_row(row) for row in rows if row.family == family])
        for family in dict.fromkeys(row.family for row in rows))
    state = " open" if len(machine.runs) == 1 else ""
    return (f"<h3>The newest run</h3><p class=\"muted\">{machine.last.date:%Y-%m-%d %H:%M} UTC, commit "
            f"{code(machine.last.commit)}.</p><details{state}><summary>{count(len(rows), 'row')}</summary>"
            f"{shown}</details>")


def newest_row(row):
    """Returns the table row for a row of the benches, which may have failed in the newest run or have no percentage."""
    value, time = row.median("roof_pct"), row.median("real_time")
    note = f" {muted('disturbed')}" if row.measurements and not row.undisturbed else ""
    missing = muted("not measured")
    return [cell(code(row.name) + note), cell(share(value) if value else missing, "of its roof", "n"),
            cell(f'<i style="width:{min(100.0, value):.1f}%"></i>' if value else "", "", "meter"),
            cell(time_words(time) if time else missing, "", "n")]


def time_words(nanoseconds):
    unit, size = next((unit, size) for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3), ("ns", 1))
                      if nanoseconds >= size or size == 1)
    return f"{nanoseconds / size:.3g}&#160;{unit}"


# --------------------------------------------------------------------------- other libraries


def head_to_head(peers):
    if not peers:
        return ""
    return section("Beside other libraries", "".join(map(of_peers, peers)))


def of_peers(measured):
    cards = [peer_card(measured["columns"], entry) for entry in measured["workloads"]]
    threads = measured.get("threads", 1)
    return (f"<p class=\"muted\">{escape(measured['machine']['cpu'])}, {count(threads, 'thread')}, "
            f"{escape(measured['date'][:10])}, by <code>tools/peers.py</code>: percent of the roof; for the "
            "smallest call, its time. The number at the right is the speed of the fastest bar of attnkit, divided by "
            f"the speed of the fastest other library.</p><div class=\"cards\">{''.join(cards)}</div>")


def peer_card(columns, entry):
    lead = others.lead(columns, entry)
    more = f"<span>{lead:.2f}&#160;×</span>" if lead else ""
    roof = "" if others.is_timed(entry) else \
        ", of the memory reads" if entry["roof"]["kind"] == "read" else ", of the multiply-adds"
    return card(escape(entry["name"].replace("_", " ")),
                more + muted(f"{escape(entry['shape'].replace('_', ' '))}, {escape(entry['type'])}{roof}"),
                others.bars(columns, entry))


# --------------------------------------------------------------------------------- the page


def section(heading, inside):
    return f"<section><h2>{heading}</h2>{inside}</section>"


def method():
    return section("How changes are found", (
        "<p>Each row of each machine is judged alone. Candidates are the splits that separate two means best. They "
        "are looked for in the whole series of runs, and in overlapping parts of half its length, a quarter of its "
        "length, and so on. A "
        f"split is a change if at most {plots.percent(100 * changes.LEVEL)} of {changes.PERMUTATIONS} random "
        "orders of the same runs have an equally good split. Then the runs on either side are split in the "
        "same way. Two successive levels whose medians differ by less than "
        f"{plots.percent(100 * changes.LEAST_STEP)} are one level. Values far out are pulled in to Tukey’s "
        "outer fences. Disturbed runs are left out. Of a hundred rows that did not change, about one is shown "
        "as changed.</p>"))


def page(machines, peers):
    parts = [summary(machines), regressions(machines),
             *map(of_machine, machines), head_to_head(peers), method()]
    return ('<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{TITLE}</title><style>\n{STYLE.read_text(encoding='utf-8')}</style></head>\n<body>"
            + "\n".join(parts) + "</body></html>\n")
