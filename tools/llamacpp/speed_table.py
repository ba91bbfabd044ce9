# SPDX-License-Identifier: Apache-2.0
"""Shows the measurements of tools/llamacpp_speed.py as tables: a table of all times, and a short table of how many
times as fast llama.cpp is with the backend as without it."""

from statistics import median

TITLES = ("fa off", "fa on", "attnkit")


class Row:
    """A measured case. `turns` is a dict from the name of a candidate to its times in milliseconds. Time i of each
    candidate was measured in round i. `faster` says how many times as fast attnkit is as the faster of the other
    candidates. The ratio to each of the other candidates is computed in each round, because the speed of a shared
    machine changes from round to round. `faster` is the smallest median of these ratios."""

    def __init__(self, kv, threads, depth, what, turns):
        self.kv, self.threads, self.depth, self.what = kv, threads, depth, what
        self.times = {title: median(of_one) for title, of_one in turns.items()}
        ours = turns["attnkit"]
        self.faster = min(median(theirs / own for theirs, own in zip(of_one, ours))
                          for title, of_one in turns.items() if title != "attnkit")

    def line(self):
        shown = " | ".join(f"{self.times[title]:.3f}" if title in self.times else "" for title in TITLES)
        return f"| {self.kv} | {self.threads} | {self.depth} | {self.what} | {shown} | {self.faster:.2f}x |"


def heading():
    titles = " | ".join(f"{title}, ms" for title in TITLES)
    line = "| --- | ---: | ---: | --- |" + " ---: |" * (len(TITLES) + 1)
    return f"| KV | threads | depth | | {titles} | faster |\n{line}"


def short_table(rows):
    """Returns the short table. It has a row for each combination of a type of cache, a number of threads, and prefill
    or decode. A row shows, for each depth, how many times as fast llama.cpp is with the backend as
    without it."""
    depths = sorted({row.depth for row in rows})
    lines = ["| KV | threads | | " + " | ".join(f"depth {depth}" for depth in depths) + " |",
             "| --- | ---: | --- |" + " ---: |" * len(depths)]
    groups = {}
    for row in rows:
        groups.setdefault((row.kv, row.threads, row.what), {})[row.depth] = f"{row.faster:.2f}x"
    for (kv, threads, what), of_depth in groups.items():
        cells = " | ".join(of_depth.get(depth, "") for depth in depths)
        lines.append(f"| {kv} | {threads} | {what} | {cells} |")
    return "\n".join(lines)
