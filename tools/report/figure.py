# SPDX-License-Identifier: Apache-2.0
"""Draws plots as SVG inside an HTML page. Words are SVG text, which a browser can search and copy. Colours are classes
of the page's style sheet, so that they change with light and dark mode. Lengths are in units of the viewBox; a unit is
about a pixel.
"""

import math
from html import escape


def number(value):
    return f"{value:.1f}".rstrip("0").rstrip(".")


class Figure:
    """The area of a plot with its margins, and the elements drawn so far. The scales x and y turn values into
    coordinates."""

    def __init__(self, width, height, margins, x, y, words):
        top, right, bottom, left = margins
        self.width, self.height = width, height
        self.left, self.right, self.top, self.bottom = left, width - right, top, height - bottom
        self.x = scale(x, self.left, self.right)
        self.y = scale(y, self.bottom, self.top)
        self.words, self.parts = words, []

    def add(self, name, inside="", **attributes):
        text = "".join(f' {key.strip("_").replace("_", "-")}="{escape(str(value))}"'
                       for key, value in attributes.items())
        self.parts.append(f"<{name}{text}>{inside}</{name}>")

    def path(self, places, kind, title=""):
        """Draws a path through coordinates, not through values."""
        if places:
            line = "L".join(f"{number(x)} {number(y)}" for x, y in places)
            self.add("path", named(title), d="M" + line, class_=kind)

    def line(self, values, kind, title=""):
        self.path([(self.x(x), self.y(y)) for x, y in values], kind, title)

    def text(self, x, y, words, kind="", anchor="start", **more):
        self.add("text", escape(words), x=number(x), y=number(y), class_=kind, text_anchor=anchor, **more)

    def rect(self, x, y, width, height, kind, title=""):
        self.add("rect", named(title), x=number(x), y=number(y), width=number(width), height=number(height),
                 rx=2, class_=kind)

    def mark(self, x, y, shape, kind, title="", size=4.0):
        """Draws a marker at these coordinates."""
        corners = " ".join(f"{number(x + size * dx)},{number(y + size * dy)}" for dx, dy in SHAPES[shape])
        if shape == "circle":
            self.add("circle", named(title), cx=number(x), cy=number(y), r=number(0.85 * size), class_=kind)
        else:
            self.add("polygon", named(title), points=corners, class_=kind)

    def rows(self, ticks, words):
        """Draws the horizontal grid lines with their labels."""
        for tick in ticks:
            self.path([(self.left, self.y(tick)), (self.right, self.y(tick))], "grid")
            self.text(self.left - 6, self.y(tick) + 4, words(tick), "tick", "end")

    def svg(self):
        return (f'<svg viewBox="0 0 {self.width} {self.height}" role="img" '
                f'aria-label="{escape(self.words)}">{"".join(self.parts)}</svg>')


SHAPES = {
    "circle": [], "square": [(-.8, -.8), (.8, -.8), (.8, .8), (-.8, .8)],
    "up": [(0, -1.1), (1, .8), (-1, .8)], "down": [(0, 1.1), (1, -.8), (-1, -.8)],
    "diamond": [(0, -1.15), (1.15, 0), (0, 1.15), (-1.15, 0)],
    "cross": [(-1, -.35), (-.35, -.35), (-.35, -1), (.35, -1), (.35, -.35), (1, -.35),
              (1, .35), (.35, .35), (.35, 1), (-.35, 1), (-.35, .35), (-1, .35)],
}


def named(title):
    return f"<title>{escape(title)}</title>" if title else ""


def scale(bounds, start, end):
    """Returns a function that turns a value into a coordinate: `start` for the first value, `end` for the last value.
    `bounds` are (first, last) or (first, last, "log")."""
    first, last = bounds[:2]
    change = math.log if len(bounds) == 3 else float
    span = (change(last) - change(first)) or 1.0
    return lambda value: start + (change(value) - change(first)) / span * (end - start)


def ticks(low, high, most=5):
    """Returns the multiples of a round step from low to high. From low to high there are at most `most` steps."""
    steps = (factor * 10 ** power for power in range(300) for factor in (1, 2, 5))
    step = next(step for step in steps if (high - low) / step <= most)
    return [step * i for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def decades(low, high):
    """Returns the powers of 10 from low to high. If low and high are at most three decades apart, also returns the
    numbers from low to high that are 2 or 5 times a power of 10."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1,) if math.log10(high / low) > 3 else (1, 2, 5)
    return [f * 10.0 ** e for e in exponents for f in factors if low <= f * 10.0 ** e <= high]
