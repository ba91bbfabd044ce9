# SPDX-License-Identifier: Apache-2.0
"""Tests of tools/report.py. Changes in made-up series are found at the right runs, and nowhere else. The page of a
made-up history has all its contents. A real browser, headless Chromium, shows the page at the width of a desktop and of
a phone. Bad files are refused.

    python3 tests/perf/test_report.py [Changes] [Page] [Browser]
    python3 tests/perf/test_report.py --keep FOLDER       # keeps history, page and screenshots there

The exit status is 77 if only Browser was asked for, but no browser is installed."""

import datetime
import html.parser
import json
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
REPORT = ROOT / "tools" / "report.py"
sys.path[:0] = [str(ROOT / "tools" / "report"), str(ROOT / "tests" / "support")]

import changes  # noqa: E402
import history  # noqa: E402
import others  # noqa: E402
import page  # noqa: E402
import png  # noqa: E402
from results import Unusable  # noqa: E402

BROWSER = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "chromium-browser",
                                               "google-chrome"))), None)
NO_BROWSER = "no Chromium: tools/set_up tests installs it"
FELL, ROSE = "prefill/f32/avx512/B1_H32_8_L2048_D128_causal", "decode/f16/avx512/B1_H32_8_L1x16384_D128"
RUNS, FALL_AT, RISE_AT = 26, 17, 9
FALL, RISE = 0.965, 1.08
FALL_COLOUR = (0xc0, 0x4a, 0x00)  # the colour --fall of style.css in light mode
CPUS = {"Old Xeon": "family 6, model 85, stepping 7", "AMD EPYC": "family 25, model 17, stepping 1"}


# ------------------------------------------------------------------------- a made-up history


def made_up_rows():
    """Returns a dict of some rows of bench/results/zen4.json: name -> (percent of the roof, FLOP per byte)."""
    content = json.loads((ROOT / "bench" / "results" / "zen4.json").read_text())
    rows = {entry["name"]: entry["roof_pct"] for entry in content["benchmarks"] if "roof_pct" in entry
            and entry["run_type"] == "iteration"
            and re.match(r"(prefill|decode|few)/.*/avx(2|512)/\w+$", entry["name"])}
    return {name: (percent, intensity(name)) for name, percent in rows.items()}


def intensity(name):
    family, kind, _, shape = name.split("/")[:4]
    size = {"f32": 4, "f16": 2, "bf16": 2}.get(kind, 1)
    keys = int(re.search(r"_L(?:\d+x)?(\d+)", shape)[1])
    return 2 * 4 / size if family == "decode" else 64 / size if family == "few" else keys / 8


def commit(run):
    return f"{run:07x}".replace("0", "c") + "abcde"


def made_up_run(cpu, run, rows, lots):
    """Returns the content of the results file of a run. In run 5 the machine is busy, and all rows but the roofs are
    disturbed. In run 5, and in all runs of the older machine, these rows reach 20 % less than in the other runs."""
    busy, entries = run == 5, []
    for name, (percent, flops_of_a_byte) in rows.items():
        level = percent * (FALL if name == FELL and run >= FALL_AT else 1) \
            * (RISE if name == ROSE and run >= RISE_AT else 1) * lots.gauss(1, 0.004)
        reads, roof = name.startswith("decode"), 17.0 if name.startswith("decode") else 118.0
        kind, level = "GBps" if reads else "GFLOPS", 0.8 * level if busy or cpu == "Old Xeon" else level
        entries.append({"name": name, "run_type": "iteration", "real_time": 4e6, "time_unit": "ns",
                        "cpu_time": 3e6 if busy else 4e6, "roof_pct": level, "roof_" + kind: roof,
                        kind: roof * level / 100, "FLOP_per_byte": flops_of_a_byte})
    for name, kind, roof in (("fma/avx2", "GFLOPS", 117.5), ("fma/avx512", "GFLOPS", 118.0),
                             ("read/dram", "GBps", 17.0)):
        entries.append({"name": name, "run_type": "iteration", "real_time": 3e5, "cpu_time": 3e5,
                        "roof_pct": 99.7, "roof_" + kind: roof, kind: roof, "time_unit": "ns"})
    date = datetime.datetime(2026, 1, 5, 7, tzinfo=datetime.timezone.utc) + datetime.timedelta(days=2 * run)
    return {"context": {"date": date.isoformat(), "attnkit": "0.1.0", "commit": commit(run),
                        "compiler": "gcc 12.2.0", "cpu": cpu, "cpu_model": CPUS[cpu],
                        "isas": "scalar avx2 avx512"}, "benchmarks": entries}


def make_history(folder, runs=RUNS, cpus=tuple(CPUS)):
    """Writes a history. The older machine has too few runs to judge."""
    folder.mkdir()
    rows, lots = made_up_rows(), random.Random(3)
    for cpu in cpus:
        for run in range(6 if cpu == "Old Xeon" else runs):
            (folder / f"{run:03}-{cpu.replace(' ', '')}.json").write_text(
                json.dumps(made_up_run(cpu, run, rows, lots)))


# ------------------------------------------------------------------------------- the changes


class Changes(unittest.TestCase):
    def test_a_step_is_found(self):
        """A step of 3 % in noise of 1 % is found in at least 54 of 60 series, at the right run or one run beside it."""
        lots, found = random.Random(5), 0
        for _ in range(60):
            at = lots.randrange(8, 23)
            values = [80 * lots.gauss(0.97 if i >= at else 1, 0.01) for i in range(30)]
            found += any(abs(place - at) <= 1 for place in changes.find(values))
        self.assertGreaterEqual(found, 54)

    def test_noise_has_no_steps(self):
        """By design, a series of pure noise shows a step with a probability of at most 1 %. The probability that more
        than 10 of the 400 series show a step is then at most 0.3 %."""
        lots = random.Random(6)
        false = sum(bool(changes.find([lots.gauss(80, 0.8) for _ in range(40)])) for _ in range(400))
        self.assertLessEqual(false, 10)

    def test_two_steps_in_order(self):
        lots = random.Random(7)
        values = [lots.gauss(level, 0.2) for level in [80] * 15 + [76] * 15 + [82] * 15]
        self.assertEqual(changes.find(values), [15, 30])

    def test_a_dip_that_went_by(self):
        lots = random.Random(8)
        values = [lots.gauss(level, 0.4) for level in [90] * 40 + [86] * 7 + [90] * 40]
        self.assertEqual(changes.find(values), [40, 47])

    def test_a_bad_run_and_a_small_step_are_no_changes(self):
        self.assertEqual(changes.find([80.0 + 0.1 * (i % 3) for i in range(12)] + [20.0] + [80.0] * 8), [])
        self.assertEqual(changes.find([80.0] * 15 + [79.5] * 15), [])  # a step of 0.6 %
        self.assertEqual(changes.find([80.0] * 15 + [79.0] * 15), [15])

    def test_short_series(self):
        self.assertEqual(changes.find([]), [])
        self.assertEqual(changes.find([80.0] * 4 + [20.0] * 5), [])
        self.assertEqual(changes.find([80.0] * 17 + [76.0] * 3), [17])


# ---------------------------------------------------------------------------------- the page


class Text(html.parser.HTMLParser):
    """The text of a page, including the text of its SVG, and whether the page is well formed."""

    VOID = {"meta", "br", "wbr"}

    def __init__(self, content):
        super().__init__()
        self.open, self.words, self.seen, self.goes_on = [], [], [], False
        self.feed(content)
        self.close()
        self.text = re.sub(r"\s+", " ", " ".join(self.words)).replace("\xa0", " ")

    def handle_starttag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))
        self.goes_on = tag == "wbr"
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        last, self.goes_on = self.open.pop(), False
        if last != tag:
            raise ValueError(f"</{tag}> ends <{last}>")

    def handle_data(self, data):
        if self.goes_on:
            self.words[-1] += data
        elif self.open and self.open[-1] != "style":
            self.words.append(data)


def report(*words, code=0):
    done = subprocess.run([sys.executable, REPORT, *map(str, words)], text=True, capture_output=True)
    if done.returncode != code:
        raise AssertionError(f"exit status {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout + done.stderr


class WithFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.page = self.folder / "page.html"

    def make(self, *words, **more):
        make_history(self.folder / "history", **more)
        self.said = report(self.folder / "history", "-o", self.page, *words)
        return self.page.read_text()


class Page(WithFolder):
    def test_the_page_has_all_contents(self):
        content = self.make("--peers", *(ROOT / f"bench/results/{name}.json" for name in ("peers", "layers", "narrow")))
        page = Text(content)
        self.assertEqual(page.open, [])
        self.assertIn("32 runs, 1 open regressions", self.said)
        row = re.search(rf"Worst regressions .*? {FELL} .*?([\d.]+) % ([\d.]+) % ▼ −([\d.]+) % [\d.]+ % "
                        r"(\w+) .*? open", page.text)
        before, after, fell = map(float, row.groups()[:3])
        self.assertAlmostEqual(after / before, FALL, delta=0.005)
        self.assertAlmostEqual(fell, 100 * (1 - FALL), delta=0.5)
        self.assertEqual(row[4], commit(FALL_AT))
        self.assertTrue(re.search(rf"[+](7\.[5-9]|8\.[0-5]) % at {commit(RISE_AT)[:7]}", page.text))
        for words in ("W3 2048", "LINEAR 512", "NARROW full bf16"):
            self.assertTrue(words in page.text)
        # A column of attnkit with a flag, such as "attnkit integers", has no bar for a workload to which the flag does
        # not apply.
        self.assertNotIn(" none ", page.text)

    def test_one_file_alone(self):
        content = self.make("--peers", ROOT / "bench/results/peers.json")
        self.assertNotRegex(content, r"(?i)<script|<link|@import|url\(|<img|https?://")
        self.assertEqual([value for _, attributes in Text(content).seen for key, value in attributes.items()
                          if key in ("src", "href", "xlink:href")], [])

    def test_machines_are_not_mixed(self):
        content = self.make()
        for cpu, model in CPUS.items():
            self.assertTrue(f"<h2>{cpu}, {model}</h2><h3>" in content)
        # The older machine reaches 20 % less than the other machine. If the page mixed the runs of both machines, the
        # page would show more changes.
        self.assertEqual(Text(content).text.count(" open "), 1)

    def test_one_run(self):
        content = self.make(runs=1, cpus=("AMD EPYC",))
        page = Text(content)
        self.assertTrue("Nothing can be said yet. 0 of" in page.text)
        self.assertFalse("over commits" in page.text)
        self.assertTrue("Rooflines" in page.text)
        self.assertTrue(re.search(rf"The newest run .* {FELL} \d+\.\d % ", page.text))
        self.assertIn("<details open>", content)

    def test_a_row_that_was_not_measured(self):
        """The newest run has rows without a percentage: one failed, and one has only a speed."""
        make_history(self.folder / "history", runs=2, cpus=("AMD EPYC",))
        file = max((self.folder / "history").iterdir())
        run = json.loads(file.read_text())
        for entry in run["benchmarks"]:
            if entry["name"] == FELL:
                entry.update(error_occurred=True, error_message="no memory")
            elif entry["name"] == ROSE:
                del entry["roof_pct"]
        file.write_text(json.dumps(run))
        report(self.folder / "history", "-o", self.page)
        page = Text(self.page.read_text())
        self.assertEqual(page.open, [])
        self.assertRegex(page.text, rf"The newest run .* {FELL} not measured not measured ")
        self.assertRegex(page.text, rf"The newest run .* {ROSE} not measured 4 ms ")

    def test_results_of_the_bench_without_history(self):
        (self.folder / "history").mkdir()
        shutil.copy(ROOT / "bench/results/zen4.json", self.folder / "history")
        report(self.folder / "history", "-o", self.page)
        self.assertTrue(FELL in Text(self.page.read_text()).text)

    def test_names_are_escaped(self):
        make_history(self.folder / "history", runs=1, cpus=("AMD EPYC",))
        file, = (self.folder / "history").iterdir()
        file.write_text(file.read_text().replace("AMD EPYC", "<b>&amp;\\\" & Sons")
                        .replace('"few/', '"<i>few/').replace("ccccccca", "<i>cccca"))
        report(self.folder / "history", "-o", self.page)
        page = Text(self.page.read_text())
        self.assertEqual(page.open, [])
        self.assertTrue("<b>&amp;\" & Sons" in page.text)

    def mutations(self, content, *places):
        """Yields copies of the content, each with one value of the dictionaries at these places removed or replaced."""
        for place in places:
            for key in place(content):
                for wrong in (None, "x", "", -1, float("nan"), [], {}):
                    copy = json.loads(json.dumps(content))
                    place(copy)[key] = wrong
                    yield copy
                copy = json.loads(json.dumps(content))
                del place(copy)[key]
                yield copy

    def test_senseless_content(self):
        """tools/report.py refuses invalid content, or makes a page of it. It never raises an unexpected exception."""
        name = "prefill/f32/avx2/B1_H12_L1024_D64"
        run = made_up_run("AMD EPYC", 1, {name: (80.0, 50.0)}, random.Random(1))
        others_file = json.loads((ROOT / "bench/results/layers.json").read_text())
        file, refused = self.folder / "x.json", 0
        for content in self.mutations(run, lambda c: c, lambda c: c["context"], lambda c: c["benchmarks"][0],
                                      lambda c: c["benchmarks"][-1]):
            file.write_text(json.dumps(content))
            try:
                page.page(history.read(self.folder), [])
            except Unusable:
                refused += 1
        self.assertGreater(refused, 100)
        for content in self.mutations(others_file, lambda c: c, lambda c: c["machine"],
                                      lambda c: c["columns"], lambda c: c["workloads"][0],
                                      lambda c: c["workloads"][0]["roof"],
                                      lambda c: c["workloads"][0]["results"]["PyTorch"]):
            file.write_text(json.dumps(content))
            try:
                page.head_to_head([others.read(file)])
            except Unusable:
                refused += 1
        self.assertGreater(refused, 200)

    def test_bad_input(self):
        history = self.folder / "history"
        self.assertIn("is no folder", report(history, code=1))
        history.mkdir()
        self.assertIn("has no runs", report(history, "-o", self.page, code=1))
        shutil.copy(ROOT / "bench/results/zen4.json", history / "run.json")
        text = (history / "run.json").read_text()
        for content, said in ((text[:5000], "no whole JSON"), ("", "no whole JSON"), ("\0", "no whole JSON"),
                              ("[]", "not of attnkit bench"), ('{"context": {}}', "not of attnkit bench"),
                              ("[" * 100000, "no whole JSON"),
                              (re.sub('"date": "[^"]*"', '"date": "0001-01-01T00:00:00+14:00"', text),
                               "not of attnkit bench: OverflowError"),
                              (text.replace('"date": "', '"date": "x'), "not of attnkit bench: ValueError")):
            (history / "run.json").write_text(content)
            done = report(history, "-o", self.page, code=1)
            self.assertIn(said, done)
            self.assertIn("run.json", done)
        (history / "run.json").write_text(text)
        self.assertIn("not of tools/peers.py", report(history, "-o", self.page, "--peers",
                                                      history / "run.json", code=1))
        self.assertFalse(self.page.exists())
        self.assertIn("cannot write", report(history, "-o", "/proc/page.html", code=1))
        report(history, "--no-such", code=2)


# ------------------------------------------------------------------------------- the browser


# A script that the test appends to a copy of the page. It writes the layout as JSON into the document that the browser
# dumps.
LOOK = """<pre id="look"></pre><script>
const box = e => { const b = e.getBoundingClientRect(); return [b.left, b.top + scrollY, b.width, b.height]; };
const all = s => [...document.querySelectorAll(s)];
const visible = e => !e.closest("details:not([open])");
document.getElementById("look").textContent = JSON.stringify({
  width: innerWidth, height: document.body.scrollHeight, scroll: document.documentElement.scrollWidth,
  figures: all("figure").filter(visible).map(f => ({
    words: f.querySelector("b").textContent, box: box(f), svg: box(f.querySelector("svg")),
    texts: [...f.querySelectorAll("svg text")].map(t => [t.textContent, ...box(t)])})),
  wide: all(".scroll").filter(visible).filter(e => e.scrollWidth > e.clientWidth).length,
  falls: all("path.change.fall").map(box),
  rows: all("tbody tr").filter(visible).map(r => [r.textContent, ...box(r)])});
</script>"""


def browse(page, folder, width, height, picture=None):
    """Opens a page in the browser and returns its layout. With `picture`, the function instead writes a picture of the
    first `height` pixels of the page to this file, and returns None."""
    command = [BROWSER, "--headless", "--disable-gpu", "--no-sandbox", "--disable-dev-shm-usage",
               "--hide-scrollbars", "--force-device-scale-factor=1", f"--user-data-dir={folder / 'profile'}",
               f"--window-size={width},{height}", "--virtual-time-budget=2000"]
    looked = folder / "looked.html"
    looked.write_text(page.read_text().replace("</body>", LOOK + "</body>"))
    if picture:
        subprocess.run([*command, f"--screenshot={picture}", page.as_uri()], check=True, timeout=120,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return None
    dom = subprocess.run([*command, "--dump-dom", looked.as_uri()], check=True, timeout=120, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    return json.loads(html.unescape(re.search(r'<pre id="look">(.*?)</pre>', dom, re.S)[1]))


@unittest.skipUnless(BROWSER, NO_BROWSER)
class Browser(WithFolder):
    def check_layout(self, look):
        self.assertLessEqual(look["scroll"], look["width"])
        self.assertEqual(look["wide"], 0)  # tables that would have to be scrolled sideways
        self.assertGreater(len(look["figures"]), 20)
        for figure in look["figures"]:
            left, _, width, height = figure["box"]
            self.assertGreater(min(width, height), 80, figure["words"])
            self.assertGreaterEqual(left, 0)
            self.assertLessEqual(left + width, look["width"] + 0.5)
            for words, x, y, text_width, text_height in figure["texts"]:
                where = f"{words!r} of {figure['words']}"
                self.assertGreater(text_width * text_height, 0, where)
                self.assertGreaterEqual(text_height, 9, where)  # large enough to be read
                self.assertGreaterEqual(x, left - 0.5, where)
                self.assertLessEqual(x + text_width, left + width + 0.5, where)
        self.assertTrue(any(FELL in words for words, *_ in look["rows"]))
        fell = next(figure for figure in look["figures"] if figure["words"] == FELL)
        self.assertTrue(any(re.match(rf"−3\.\d % at {commit(FALL_AT)[:7]}", text[0]) for text in fell["texts"]))

    def test_a_desk(self):
        self.make("--peers", ROOT / "bench/results/peers.json")
        look = browse(self.page, self.folder, 1200, 900)
        self.check_layout(look)
        picture = self.folder / "desk.png"
        browse(self.page, self.folder, 1200, 1200, picture)
        pixels = png.decode(picture.read_bytes())[..., :3]
        self.assertEqual(pixels.shape, (1200, 1200, 3))
        self.assertGreater(len(np.unique(pixels[::7, ::7].reshape(-1, 3), axis=0)), 10)
        # The mark of the fall has the colour of falls, lies where the layout says, and is at the right run in the plot.
        (x, y, _, length), = look["falls"]
        self.assertLess(y + length, len(pixels))
        triangle = pixels[round(y) - 12:round(y) + 1, round(x) - 6:round(x) + 7]
        self.assertGreater((triangle == FALL_COLOUR).all(axis=-1).sum(), 15)
        fell = next(figure for figure in look["figures"] if figure["words"] == FELL)
        left, _, plot_width, _ = fell["svg"]
        expected = (44 + (FALL_AT - 0.5) / (RUNS - 1) * (360 - 56)) / 360  # a fraction of the viewBox's width of 360
        self.assertAlmostEqual((x - left) / plot_width, expected, delta=0.01)

    def test_a_phone(self):
        self.make("--peers", ROOT / "bench/results/peers.json", runs=20)
        look = browse(self.page, self.folder, 390, 900)
        self.assertEqual(look["width"], 390)
        self.check_layout(look)


def keep(folder):
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder / "history", ignore_errors=True)
    make_history(folder / "history")
    page = folder / "page.html"
    report(folder / "history", "-o", page, "--peers", ROOT / "bench/results/peers.json")
    for name, width in (("desk", 1200), ("phone", 390)) if BROWSER else ():
        look = browse(page, folder, width, 900)
        browse(page, folder, width, look["height"] + 90, folder / f"{name}.png")
    print(f"wrote {folder}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--keep"]:
        keep(pathlib.Path(sys.argv[2]).resolve())
    elif sys.argv[1:] == ["Browser"] and not BROWSER:
        print(NO_BROWSER)
        sys.exit(77)
    else:
        unittest.main()
