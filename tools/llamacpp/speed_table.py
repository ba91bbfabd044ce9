# SPDX-License-Identifier: Apache-2.0
"""Shows the measurements of tools/llamacpp_speed.py as tables: a table of all times, and a short table of how many
times as fast llama.cpp is with the backend."""

TITLES = ("fa off", "fa on", "attnkit")


class Row:
    """A measured case, and its medians as a dict from the name of a candidate to milliseconds."""

    def __init__(self, kv, threads, depth, what, times):
        self.kv, self.threads, self.depth, self.what, self.times = kv, threads, depth, what, times
        self.faster = min(time for title, time in times.items() if title != "attnkit") / times["attnkit"]

    def line(self):
        shown = " | ".join(f"{self.times[title]:.3f}" if title in self.times else "" for title in TITLES)
        return f"| {self.kv} | {self.threads} | {self.depth} | {self.what} | {shown} | {self.faster:.2f}x |"


def heading():
    titles = " | ".join(f"{title}, ms" for title in TITLES)
    line = "| --- | ---: | ---: | --- |" + " ---: |" * (len(TITLES) + 1)
    return f"| KV | threads | depth | | {titles} | faster |\n{line}"


def short_table(rows):
    """Returns the short table. For each type of cache and number of threads, it shows how many times as fast llama.cpp
    is with the backend at each depth, in prefill and in decode. The comparison is with the faster mode of stock
    llama.cpp."""
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
