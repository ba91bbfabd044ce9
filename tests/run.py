#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the default suites of tests, or the suites that are named. Together the default suites test every instruction
set: natively, or emulated if this CPU lacks the instruction set.

    tests/run.py [--every-isa] [SUITE ...]

tools/test calls this script after it has installed the packages that the tests need. Two suites run at a time, but
their output appears in order. The suite speed runs alone. Each suite prints its wall seconds, which grow with the load
of the other suite, and its processor seconds, which do not. At the end, tables show where each instruction set, each
unit, and each instruction for bf16 and bytes ran. A run of named suites that test none of these prints no tables. The
last line is "N passed, N failed". With --every-isa and without a SUITE, an instruction set, unit or instruction that
ran nowhere is a failure."""

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from side_by_side import Job, run_jobs

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
NEON_BUILD = ROOT / "build-neon"
EMULATORS = ROOT / "tests" / "emulators"
INTEROP = ROOT / "tests" / "interop"
REPOSITORY = ROOT / "tests" / "repository"
TILES = "avx512+amx"  # the unit that a program has to enable
PAIRS = "avx512+bf16"  # the unit for pairs of bf16
GOLDEN = ROOT / "tests" / "promises" / "golden.txt"
NOT_AVAILABLE = 98  # exit status of a script in tests/emulators/ if this system lacks what the emulation needs
NOTHING_TO_SEE = 77  # exit status of tools/static/loops.py if it has checked nothing
AT_ONCE = 2  # suites at a time: one computes while the other links, or waits for a long test or for the emulator

passed = 0
failed = []
ran_where = {}  # name of an instruction set, of a unit, or of an instruction that test_units checks -> where tested


def say(text):
    print(text, flush=True)


def record(name, ok, output=""):
    """Counts one check, and shows the end of the output of a failing check."""
    global passed
    if ok:
        passed += 1
        return
    failed.append(name)
    say(f"FAILED: {name}")
    for line in output.splitlines()[-40:]:
        say("    " + line)


def run(command, **more):
    """Runs a command to its end. Returns its exit status, which is -1 after a time-out, and its output: stdout and
    stderr as one text."""
    more.setdefault("cwd", ROOT)
    try:
        done = subprocess.run([str(word) for word in command], text=True, errors="replace",
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              stdin=subprocess.DEVNULL, **more)
        return done.returncode, done.stdout
    except subprocess.TimeoutExpired as late:
        return -1, (late.stdout or b"").decode(errors="replace") + "\ntime-out"


def must(what, command, **more):
    status, output = run(command, **more)
    record(what, status == 0, output)
    return status == 0


TAP_LINE = re.compile(r"^(not )?ok \d+(?: - |\b)(.*)$", re.MULTILINE)
TAP_PLAN = re.compile(r"^1\.\.(\d+)$", re.MULTILINE)


def record_tap(name, status, output, ended_well=True):
    """Counts every TAP line, except the lines of skipped tests. Also counts a failure if the program bailed out,
    printed no plan or another number of lines than planned, or ended with an error without reporting a failed test."""
    lines, plan = list(TAP_LINE.finditer(output)), TAP_PLAN.search(output)
    ends = [0, *(line.end() for line in lines)]
    starts = [*(line.start() for line in lines), len(output)]
    for i, line in enumerate(lines):
        bad, test = line.groups()
        if "# SKIP" in test:
            say(f"    skipped: {name}: {test}")
        else:  # the output of a failed test is before and after its line
            record(f"{name}: {test}", not bad, output[ends[i]:starts[i + 1]].strip())
    complete = plan and len(lines) == int(plan.group(1)) and "Bail out!" not in output
    told = any(line.group(1) for line in lines)
    if not complete or (status != 0 or not ended_well) and not told:
        record(f"{name}: incomplete, or exit status {status}", False, output)


def meson():
    for candidate in (shutil.which("meson"), ROOT / ".venv" / "bin" / "meson"):
        if candidate and Path(candidate).exists():
            return candidate
    sys.exit("run.py: no meson; tools/test installs it")


def meson_tests(folder, *arguments, slower=1):
    """Runs `meson test`, and counts the TAP lines of each test. A test that prints no TAP counts as one check. The time
    limit of each test is multiplied by `slower`, and by AT_ONCE because other suites run at the same time. Returns a
    dict of the tests' outputs by name."""
    log = folder / "meson-logs" / "testlog.json"
    log.unlink(missing_ok=True)
    before = len(failed)
    status, output = run([meson(), "test", "-C", folder, "--no-rebuild",
                          "--timeout-multiplier", str(slower * AT_ONCE), *arguments])
    if not log.exists():
        record(f"{folder.name}: meson test", False, output)
        return {}
    outputs = {}
    for line in log.read_text().splitlines():
        test = json.loads(line)
        text = test.get("stdout", "") + test.get("stderr", "")
        short = test["name"].split(" / ")[-1]
        outputs[short] = text
        name = f"{folder.name}: {short}"
        if test["result"] == "SKIP":
            say(f"    skipped: {name}: " + (text.strip().splitlines() or ["the test does not say why"])[-1])
        elif TAP_PLAN.search(text):
            record_tap(name, test["returncode"], text, test["result"] == "OK")
        else:
            record(name, test["result"] == "OK", text)
    # Meson 1.0 counts cmocka's "not ok 1 # SKIP" as a failure.
    skipped = any("# SKIP" in text for text in outputs.values())
    if status != 0 and len(failed) == before and not skipped:
        record(f"{folder.name}: meson test ended with {status}", False, output)
    return outputs


def programs_of(folder, suite):
    """Returns the build targets of the programs that the tests of a meson suite run."""
    tests = json.loads(run([meson(), "introspect", "--tests", folder])[1])
    return sorted({os.path.relpath(test["cmd"][0], folder) for test in tests
                   if suite in (name.split(":")[-1] for name in test["suite"])})


def build(folder, *options, suite=None, **more):
    """Compiles a build tree. If the tree does not exist, sets it up with these options first. With `suite`, compiles
    only the programs that the tests of this suite run. Returns whether the build tree is compiled."""
    if not (folder / "build.ninja").exists():
        if not must(f"{folder.name}: meson setup", [meson(), "setup", folder, ROOT, *options],
                    **more):
            shutil.rmtree(folder, ignore_errors=True)
            return False
    targets = programs_of(folder, suite) if suite else []
    return must(f"{folder.name}: compile", [meson(), "compile", "-C", folder, *targets])


def build_neon():
    return build(NEON_BUILD, "--cross-file", EMULATORS / "aarch64.ini", "--buildtype=release",
                 "-Dsleef=enabled", "-Dwerror=true")


def check_loops(isa, folder):
    """Checks the inner loops of a cross build. The native loops are checked by a test of meson."""
    status, output = run([sys.executable, ROOT / "tools" / "static" / "loops.py", folder])
    if status == NOTHING_TO_SEE:
        say(f"    skipped: loops: {isa}: " + output.strip())
    else:
        record(f"loops: {isa}", status == 0, output)


def figures(outputs):
    """Prints the lines of the tests' outputs that a reader most wants to see."""
    for text in outputs.values():
        wanted = r"cases, \d+ differ|worst E of all|worst error / bound|built without SLEEF|tests passed|: error"
        for line in re.findall(rf"^# (.*(?:{wanted}).*)$", text, re.M):
            say("    " + line)


# -------------------------------------------------------------------------------------- suites


def suite_native():
    """All tests of meson, on the instruction sets that this machine can run."""
    outputs = meson_tests(BUILD)
    figures(outputs)
    note_units(outputs.get("units", ""), "natively")
    note_pairs(outputs.get("pairs", ""), "natively")
    note_integers(outputs.get("golden", ""), "natively")
    agree = [set(re.findall(r"^# (\w+): \d+ cases, 0 differ", text, re.M))
             if not re.search(r"^not ok", text, re.M) else set()
             for name, text in outputs.items() if name.startswith("same_bits ")]
    for isa in set.intersection(*agree) if agree else ():
        ran_where[isa] = "natively"


def suite_objects():
    """No instruction beyond the baseline outside the folders of the instruction sets."""
    must("objects: baseline", [sys.executable, REPOSITORY / "baseline.py", BUILD])


def suite_install():
    """The installed files serve a program that only has pkg-config."""
    must("install", [sys.executable, REPOSITORY / "installed.py", BUILD, meson()])


def suite_consumers():
    """Projects outside the tree use the library by CMake, pkg-config, meson and lists of files."""
    status, output = run([sys.executable, ROOT / "tests" / "consumers" / "consumers.py", BUILD, meson()],
                         timeout=3600)
    record_tap("consumers", status, output)


def onnx_cases(name, folder, *wrapper):
    status, output = run([sys.executable, INTEROP / "onnx" / "conformance.py", folder, *wrapper],
                         timeout=1800)
    record_tap(name, status, output)
    for line in re.findall(r"^# (onnx \w+: \d.*)$", output, re.MULTILINE):
        say("    " + line)


def portable_state(name, wrapper, folder):
    """Checks that this machine and the emulated machine can each continue from the state file of the other machine,
    with the same result."""
    example = Path("examples") / "example_portable_state"
    status, output = run([sys.executable, INTEROP / "portable.py", BUILD / example, wrapper,
                          folder / example], timeout=600)
    record_tap(f"{name}: each machine continues from the state and cache of the other", status, output)


def suite_onnx():
    """The cases of ONNX's Attention and FlexAttention, on the instruction sets that this machine can run."""
    onnx_cases("onnx", BUILD)


def suite_python():
    """The Python package: built by pip in a new environment, and compared with float64 and with the C call."""
    status, output = run([sys.executable, ROOT / "tests" / "python" / "suite.py", BUILD], timeout=1800)
    record_tap("python", status, output)
    for line in re.findall(r"^# (attnkit\S*\.whl: .*|auditwheel: .*)$", output, re.MULTILINE):
        say("    " + line)


def suite_wheels():
    """The wheels of the Python package for PyPI: built for all versions of Python, each tested in a new environment."""
    status, output = run([sys.executable, ROOT / "tests" / "python" / "wheels_suite.py", BUILD], timeout=7200)
    record_tap("wheels", status, output)
    for line in re.findall(r"^# (attnkit\S*\.whl: .*|no Python .*)$", output, re.MULTILINE):
        say("    " + line)


def suite_openvino():
    """The extension for OpenVINO: built with the package of PyPI, and compared with OpenVINO's own attention."""
    status, output = run([sys.executable, INTEROP / "openvino" / "suite.py"], timeout=7200)
    record_tap("openvino", status, output)
    for line in re.findall(r"^# (openvino .*)$", output, re.MULTILINE):
        say("    " + line)


def suite_neon():
    """The NEON kernels in qemu's user mode, and their inner loops."""
    if platform.machine() == "aarch64":
        return
    status, output = run([EMULATORS / "neon_machine", "/bin/true"])
    if status == NOT_AVAILABLE or not shutil.which("aarch64-linux-gnu-gcc"):
        say("    not available here: " + (output.strip() or "no aarch64-linux-gnu-gcc"))
        return
    if not build_neon():
        return
    before = len(failed)
    outputs = meson_tests(NEON_BUILD, "--no-suite", "native", slower=5)
    figures(outputs)
    if len(failed) == before and re.search(r"neon: \d+ cases, 0 differ", outputs.get("golden", "")):
        ran_where["neon"] = "emulated (qemu-user)"
        note_integers(outputs["golden"], "emulated (qemu-user)")
    emulate_neon_units()
    check_loops("neon", NEON_BUILD)
    portable_state("neon", EMULATORS / "neon_machine", NEON_BUILD)
    onnx_cases("neon: onnx", NEON_BUILD, EMULATORS / "neon_machine")


def emulate_neon_units():
    """Runs test_dispatch on an emulated CPU with all features that qemu emulates. On the same CPU, tests the units of
    NEON that have not been tested yet."""
    machine = [EMULATORS / "neon_machine", "-cpu", "max"]
    status, output = run([*machine, NEON_BUILD / "tests" / "test_dispatch"], timeout=600)
    record_tap("neon machine: dispatch", status, output)
    for name in library_units(NEON_BUILD):
        if name not in ran_where:
            emulate_integers(name, machine, GOLDEN, [], NEON_BUILD, "emulated (qemu-user)")


def suite_avx512():
    """The AVX-512 kernels in a full-system emulator, if the CPU lacks AVX-512."""
    if platform.machine() != "x86_64" or ran_where.get("avx512"):
        return
    machine = [EMULATORS / "avx512_machine", "--timeout", "900"]
    guest = "/golden.txt"
    status, output = run(machine + [BUILD / "tests" / "golden", guest, "--isa", "avx512",
                                    "--every", "3", "--file", f"{GOLDEN}={guest}"], timeout=2400)
    if status == NOT_AVAILABLE:
        say("    not available here: " + output.strip())
        return
    record_tap("avx512 machine: golden", status, output)
    figures({"": output})
    ended_well = status == 0
    for test, *arguments in (["masked", "avx512"], ["convert", "avx512", "few"],
                             ["append", "avx512"], ["linear", "avx512"],
                             ["masks", "--isa", "avx512", "--cases", "1200"]):
        status, output = run(machine + [BUILD / "tests" / f"test_{test}", *arguments],
                             timeout=2400)
        record_tap(f"avx512 machine: {test}", status, output)
        ended_well = ended_well and status == 0
    if ended_well:
        ran_where["avx512"] = "emulated (Bochs)"


def note_pairs(output, where):
    """Records which units multiplied pairs of bf16 and gave the bits of the reference."""
    if not re.search(r"^(not ok|Bail out)", output, re.MULTILINE):
        for name in re.findall(r"^# (\S+): prefill: \d+ cases, \d+ with pairs$", output, re.MULTILINE):
            ran_where.setdefault(name, where)


def note_integers(output, where):
    """Records which units gave the golden bits."""
    if not re.search(r"^(not ok|Bail out)", output, re.MULTILINE):
        for name in re.findall(r"^# (\w+\+(?!none)\w+): \d+ cases, 0 differ$", output, re.MULTILINE):
            ran_where.setdefault(name, where)


def emulate_integers(name, machine, golden, golden_options, build, where):
    """Runs the tests of integers with a unit on an emulated CPU that has the unit. `golden` is the path of the stored
    hashes on the emulated machine."""
    before = len(failed)
    for kind in "attention-integers", "attention-integers-i8", "linear-integers":
        status, output = run([*machine, build / "tests" / "golden", golden, "--isa", name, "--kind", kind,
                              *golden_options], timeout=2400)
        record_tap(f"emulated: {kind} of {name}", status, output)
        if not re.search(rf"^# {re.escape(name)}: \d+ cases, 0 differ$", output, re.MULTILINE):
            record(f"emulated: {kind} ran with {name}", False, output)
    for test in "test_integers", "test_linear_integers":
        status, output = run([*machine, build / "tests" / test, "--isa", name], timeout=3000)
        record_tap(f"emulated: {test} of {name}", status, output)
    if len(failed) == before:
        ran_where[name] = where


def suite_pairs():
    """The units for pairs of bf16 and for integers, in a full-system emulator if the CPU lacks the units."""
    missing = [name for name in library_units() if name != TILES and name not in ran_where]
    if platform.machine() != "x86_64" or not missing:
        return
    machine, guest = [EMULATORS / "avx512_machine", "--timeout", "2400"], "/golden.txt"
    status, output = run(machine + [BUILD / "tests" / "test_dispatch"], timeout=2400)
    if status == NOT_AVAILABLE:
        say("    not available here: " + output.strip())
        return
    record_tap("avx512 machine: dispatch", status, output)
    if PAIRS in missing:
        status, output = run(machine + [BUILD / "tests" / "test_pairs"], timeout=2400)
        record_tap("avx512 machine: pairs", status, output)
        note_pairs(output, "emulated (Bochs)")
        status, output = run(machine + [BUILD / "tests" / "test_grouped", "--isa", PAIRS, "--every", "4"], timeout=2400)
        record_tap("avx512 machine: groups of products", status, output)
    for name in missing:
        if name not in ran_where:
            emulate_integers(name, machine, guest, ["--file", f"{GOLDEN}={guest}"], BUILD, "emulated (Bochs)")


def suite_tiles():
    """The unit of AVX-512 with tiles (AMX), in a full-system emulator, if the CPU lacks the unit."""
    if platform.machine() != "x86_64" or TILES in ran_where or TILES not in library_units():
        return
    machine, guest = [EMULATORS / "avx512_machine", "--timeout", "900"], "/golden.txt"
    ended_well = True
    for test, *arguments in (["test_enable"], ["test_grouped", "--isa", TILES, "--every", "4"],
                             ["golden", guest, "--isa", TILES, "--kind", "attention-products",
                              "--file", f"{GOLDEN}={guest}"]):
        status, output = run(machine + [BUILD / "tests" / test, *arguments], timeout=2400)
        if status == NOT_AVAILABLE:
            say("    not available here: " + output.strip())
            return
        record_tap(f"tiles machine: {test}", status, output)
        ended_well = ended_well and status == 0
    if ended_well:
        ran_where[TILES] = "emulated (Bochs)"


def note_units(output, where):
    """Records which instructions gave the bits of the C functions that imitate them, and how many bits were tested."""
    for name, bits in re.findall(r"^# unit (.+): (\d+) bits in \d+ lanes, 0 differ$", output, re.MULTILINE):
        ran_where.setdefault(name, f"{where}, {int(bits):,} bits")


def names_of_units():
    """Returns the names of the instructions that test_units checks: for this CPU architecture and, if the build for
    NEON exists, for ARM."""
    programs = [(), BUILD], [(EMULATORS / "neon_machine",), NEON_BUILD]
    commands = [[*wrapper, folder / "tests" / "test_units", "--list"]
                for wrapper, folder in programs if (folder / "tests" / "test_units").exists()]
    return [name for command in commands for name in run(command)[1].splitlines()]


def emulate_units(name, where, machine, folder):
    """Compares the instructions of an emulated CPU with C functions that imitate them."""
    program = folder / "tests" / "test_units"
    if not program.exists():
        say(f"    no {name} machine: {folder.name}/ has no test_units")
        return
    status, output = run([*machine, program], timeout=1200)
    if status == NOT_AVAILABLE:
        say("    not available here: " + output.strip())
        return
    record_tap(f"{name} machine: units", status, output)
    note_units(output, where)


def suite_units():
    """Instructions for bf16 and bytes against imitations in C; emulated if this CPU lacks the instructions."""
    if platform.machine() == "x86_64" and any(name not in ran_where for name in names_of_units()):
        emulate_units("avx512", "emulated (Bochs)", [EMULATORS / "avx512_machine"], BUILD)
    if platform.machine() != "aarch64":
        emulate_units("neon", "emulated (qemu-user)", [EMULATORS / "neon_machine", "-cpu", "max"],
                      NEON_BUILD)


def suite_models():
    """The choice of an instruction set and unit on emulated x86 and ARM CPUs, such as Nehalem and Cortex-A76."""
    command = [EMULATORS / "cpu_models.sh"]
    if platform.machine() == "x86_64":
        command += ["--x86", BUILD / "tests" / "cpu_model_probe"]
    if (NEON_BUILD / "tests" / "cpu_model_probe").exists():
        command += ["--arm", NEON_BUILD / "tests" / "cpu_model_probe"]
    else:
        say("    no models of ARM: build-neon/ is not built (suite neon)")
    status, output = run(command)
    if status == NOT_AVAILABLE or len(command) == 1:
        say("    not available here: " + output.strip())
        return
    record_tap("cpu models", status, output)


def suite_clang():
    """The library built by clang, without SLEEF: no warnings, and the same bits."""
    if not shutil.which("clang"):
        say("    not available here: no clang")
        return
    folder = ROOT / "build-clang"
    environment = dict(os.environ, CC="clang", CXX="clang++" if shutil.which("clang++") else "c++")
    if build(folder, "-Dwerror=true", "-Dsleef=disabled", env=environment):
        figures(meson_tests(folder, "--no-suite", "native"))


def sanitized(name, *options, suite=None):
    """Makes a build with a sanitizer. Returns the folder of the build, or None if the build fails. The build leaves out
    the benches, which no test of this build runs. The build also leaves out the instruction sets that this CPU lacks,
    because their kernels take minutes to compile with a sanitizer."""
    folder = ROOT / f"build-{name}"
    runs = "-Disas=" + ",".join(isas(r"yes +yes"))
    ready = build(folder, "--buildtype=debug", "-Doptimization=1", "-Db_lundef=false",
                  "-Dwerror=true", "-Dbench=disabled", runs, *options, suite=suite)
    return folder if ready else None


def suite_asan():
    """No invalid access to memory and no undefined behaviour, by two sanitizers. Built without SLEEF."""
    folder = sanitized("asan", "-Db_sanitize=address,undefined", "-Dsleef=disabled")
    if folder:
        outputs = meson_tests(folder, "--no-suite", "native")
        figures(outputs)
        agree = re.findall(r"^# (\w+): \d+ cases, 0 differ", outputs.get("golden", ""), re.MULTILINE)
        missing = set(isas(r"yes +yes")) - set(agree)
        record("asan: the golden bits on every instruction set without SLEEF", agree and not missing,
               f"not on {', '.join(sorted(missing))}")


def suite_tsan():
    """No data race, by the thread sanitizer in the suite of threaded tests."""
    folder = sanitized("tsan", "-Db_sanitize=thread", "-Dtools=false", suite="threaded")
    if folder:
        figures(meson_tests(folder, "--suite", "threaded", slower=3))


def suite_speed():
    """This build compared with the commit that it is based on, and the floors of the benches (docs/ci.md)."""
    status, output = run([sys.executable, ROOT / "tests" / "perf" / "speed.py", BUILD])
    for line in re.findall(r"^# (.*)$", output, re.MULTILINE):
        say("    " + line)
    record_tap("speed", status, output)


def suite_torch():
    """PyTorch: the library compared with PyTorch in float64, recipes for PyTorch's behaviour, and attnkit.torch in
    PyTorch."""
    status, output = run([sys.executable, INTEROP / "pytorch" / "compare.py", BUILD], timeout=7200)
    record_tap("pytorch", status, output)
    figures({"": output})
    status, output = run([sys.executable, ROOT / "tests" / "python" / "with_torch" / "suite.py"], timeout=7200)
    record_tap("attnkit.torch", status, output)
    for line in re.findall(r"^# ((?:OpInfo|tiny call|large call): .*)$", output, re.MULTILINE):
        say("    " + line)


def suite_transformers():
    """Hugging Face transformers: sixteen families of models with random weights on attnkit, beside eager attention."""
    status, output = run([sys.executable, INTEROP / "transformers" / "suite.py"], timeout=7200)
    for line in re.findall(r"^# (families: .*)$", output, re.MULTILINE):
        say("    " + line)
    record_tap("attnkit.transformers", status, output)


def llamacpp_test(program, *options):
    status, output = run([sys.executable, INTEROP / "llamacpp" / program, BUILD, *options], timeout=7200)
    record_tap(f"llama.cpp: {program}", status, output)
    figures({"": output})


def suite_llamacpp():
    """The backend for ggml: every case of llama.cpp's own test of attention, odd cases, whole models, and a server."""
    llamacpp_test("ops.py")
    llamacpp_test("odd.py")
    llamacpp_test("models.py")
    llamacpp_test("sequences.py")
    llamacpp_test("server.py")


def suite_llamacpp_part():
    """The backend for ggml: 223 cases of llama.cpp's own test of attention, with all values of all parameters."""
    llamacpp_test("ops.py", "--part", 200)


def suite_distributed():
    """Attention over several processes: on 1 to 4 ranks over gloo and MPI, and with ranks that are killed."""
    status, output = run([sys.executable, ROOT / "tests" / "distributed" / "suite.py", BUILD], timeout=7200)
    for line in re.findall(r"^# ((?:\||gloo|mpi|  after).*)$", output, re.MULTILINE):
        say("    " + line)
    record_tap("distributed", status, output)


def suite_systems():
    """Other compilers and systems: Windows, macOS, Android, musl, RISC-V; gcc and clang of Debian trixie."""
    status, output = run([sys.executable, ROOT / "tests" / "systems" / "systems.py", BUILD, meson()], timeout=36000)
    for line in re.findall(r"^# (\w+: .*)$", output, re.MULTILINE):
        say("    " + line)
    record_tap("systems", status, output)


def suite_older():
    """`attnkit compare` with a revision that has no worker: the command builds the current worker for it."""
    status, output = run([sys.executable, ROOT / "tests" / "perf" / "older.py", BUILD], timeout=3600)
    for line in re.findall(r"^# (.*)$", output, re.MULTILINE):
        say("    " + line)
    record_tap("older", status, output)


def suite_long():
    """All cases of the tests under qemu and with sanitizers, and the long forms of the tests on this CPU."""
    os.environ["ATTNKIT_TEST_WHOLE"] = "1"
    for suite in (suite_neon, suite_asan, suite_tsan):
        suite()
    os.environ["ATTNKIT_TEST_LONG"] = "1"
    figures(meson_tests(BUILD, slower=20))


SUITES = {
    "native": suite_native,
    "objects": suite_objects,
    "install": suite_install,
    "consumers": suite_consumers,
    "onnx": suite_onnx,
    "llamacpp_part": suite_llamacpp_part,
    "python": suite_python,
    "asan": suite_asan,
    "neon": suite_neon,
    "tsan": suite_tsan,
    "avx512": suite_avx512,
    "clang": suite_clang,
    "pairs": suite_pairs,
    "tiles": suite_tiles,
    "units": suite_units,
    "models": suite_models,
    "speed": suite_speed,
}
ON_DEMAND = {"torch": suite_torch,  # 2.6 GB to download
             "transformers": suite_transformers,  # downloads torch and transformers
             "wheels": suite_wheels,  # builds the library once for each version of Python
             "openvino": suite_openvino,  # 100 MB to download
             "llamacpp": suite_llamacpp,  # builds llama.cpp
             "distributed": suite_distributed,  # downloads torch, needs Open MPI
             "systems": suite_systems,  # downloads compilers, 1 GB unpacked
             "older": suite_older,  # builds a whole revision
             "long": suite_long}  # takes hours
AFTER = {"avx512": ("native",),  # avx512 emulates AVX-512 unless AVX-512 has run natively
         "pairs": ("native",),
         "tiles": ("native",),
         "units": ("native", "neon"),  # units needs the list of natively run instructions, and the build of suite neon
         "models": ("neon",)}
ALONE = ("speed",)  # speed measures times, which other suites would disturb


def isas(state=r"(?:yes|no) +(?:yes|no)"):
    """Returns the instruction sets that the library knows and that match `state`. `state` is a pattern for two words
    that `attnkit info` prints: yes or no for built, and yes or no for able to run here."""
    _, output = run([BUILD / "tools" / "attnkit", "info"])
    return re.findall(rf"^(\w+) +{state} ", output, re.MULTILINE)


def units_of(built, *command):
    """Returns the units whose column "built" in `attnkit info` matches `built`: yes, no, or a pattern for both.
    `command` runs the program attnkit."""
    _, output = run([*command, "info"])
    return re.findall(rf"^(\w+\+\w+) +{built} ", output, re.MULTILINE)


def library_units(folder=BUILD):
    """Returns the units that the library of a build holds."""
    wrapper = [EMULATORS / "neon_machine"] if folder == NEON_BUILD and platform.machine() != "aarch64" else []
    return units_of("yes", *wrapper, folder / "tools" / "attnkit")


def all_units():
    """Returns the units of all CPU families."""
    return units_of("(?:yes|no)", BUILD / "tools" / "attnkit")


def list_isas(every_isa):
    known, units = isas(), names_of_units()
    record("attnkit info lists the instruction sets", len(known) >= 4)
    record("test_units is built: the compiler knows its instructions",
           bool(units) or not every_isa)
    for title, names in ("instruction set", known), ("unit", all_units()), ("instruction", units):
        say(f"\n{title:<18}tested")
        for name in names:
            where = ran_where.get(name)
            say(f"  {name:<16}{where or 'NOT TESTED: neither runs here nor was emulated'}")
            if every_isa and not where:
                record(f"{name} was tested", False)


def summary():
    for name in failed:
        say(f"failed: {name}")
    say(f"\n{passed} passed, {len(failed)} failed")


def job_of(name, suite):
    """Returns a job that runs a suite in its own process. The job returns the number of passed checks, the names of the
    failed checks, and `ran_where`."""
    def work():
        global passed
        passed = 0
        failed.clear()
        say(f"{name}: {suite.__doc__}")
        suite()
        return passed, failed, ran_where
    return Job(name, work, AFTER.get(name, ()), name in ALONE)


def add_up(job, outcome):
    """Adds the counts of a suite to the totals. Later suites see in `ran_where` what this suite has tested."""
    global passed
    if not outcome.value:
        failed.append(f"{job.name}: its process ended early")
        return
    count, names, where = outcome.value
    passed += count
    failed.extend(names)
    ran_where.update(where)


def run_suites(names, suites):
    began = time.monotonic()
    jobs = [job_of(name, suites[name]) for name in names]
    for job, outcome in run_jobs(jobs, AT_ONCE, add_up):
        count = outcome.value[0] if outcome.value else "its process ended early; none"
        say(f"    {count} passed in {outcome.wall:.0f} s, {outcome.processor:.0f} s of processor time")
    say(f"all suites: {time.monotonic() - began:.0f} s")


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    arguments.add_argument("--every-isa", action="store_true",
                           help="an instruction set, unit or instruction that ran nowhere is a failure")
    arguments.add_argument("suites", nargs="*", metavar="SUITE",
                           help="one of " + ", ".join(SUITES) + ", which are all run by default, or " +
                           ", ".join(ON_DEMAND) + " (see tests/interop/pytorch/compare.py, "
                           "tests/python/with_torch/suite.py, tests/perf/older.py)")
    options = arguments.parse_args()
    suites = {**SUITES, **ON_DEMAND}
    for name in options.suites:
        if name not in suites:
            arguments.error(f"no suite {name}; there are {', '.join(suites)}")
    os.environ.pop("ATTNKIT_ISA", None)
    run_suites(list(dict.fromkeys(options.suites or SUITES)), suites)
    if ran_where or not options.suites:  # otherwise the suites have tested no instruction set
        list_isas(options.every_isa and not options.suites)
    summary()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
