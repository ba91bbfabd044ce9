# SPDX-License-Identifier: Apache-2.0
"""Tests of the package itself: the facts that it reports, its types, docstrings and binary, and its behaviour with
threads, forks and the global interpreter lock."""

import ast
import ctypes
import inspect
import multiprocessing
import os
import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path

import attnkit
import numpy as np
from attnkit import _core
from reference import drawn

FOLDER = Path(attnkit.__file__).parent


def attend_in_child(q, expected, answers):
    answers.put(attnkit.attention(q, q, q, threads=3).tobytes() == expected)


class Package(unittest.TestCase):
    """Tests what info() says, the choice of an instruction set, the files, the signatures and the docstrings."""

    def test_info(self):
        info = attnkit.info()
        library = ctypes.CDLL(os.environ["ATTNKIT_TEST_LIBRARY"])
        library.attnkit_version.restype = ctypes.c_char_p
        self.assertEqual(info["version"], library.attnkit_version().decode())
        self.assertEqual(attnkit.__version__, info["version"])
        self.assertGreaterEqual({isa["name"] for isa in info["isas"]}, {"scalar", "avx2", "avx512", "neon"})
        self.assertIn(info["prefill"], [isa["name"] for isa in info["isas"] if isa["can_run"]])

    def test_other_instruction_sets_have_the_same_bits(self):
        code = ("import attnkit, numpy as np; q = np.random.default_rng(1).standard_normal((2, 2, 9, 64), np.float32);"
                "print(attnkit.info()['prefill'], attnkit.attention(q, q, q, causal='upper-left').tobytes().hex())")
        said = {}
        for isa in attnkit.info()["isas"]:
            if isa["can_run"]:
                done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "ATTNKIT_ISA": isa["name"]},
                                      capture_output=True, text=True, check=True)
                name, bits = done.stdout.split()
                said[name] = bits
        self.assertGreaterEqual(len(said), 2)
        self.assertEqual(len(set(said.values())), 1)

    def test_unknown_instruction_set(self):
        code = ("import attnkit, numpy as np; q = np.zeros((1, 1, 1, 8), np.float32)\n"
                "try:\n    attnkit.attention(q, q, q)\nexcept RuntimeError as error:\n    print(error)")
        done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "ATTNKIT_ISA": "mmx"},
                              capture_output=True, text=True, check=True)
        self.assertRegex(done.stdout, "ATTNKIT_BAD_ISA: .*mmx")

    def test_header_serves_c(self):
        folder = Path(attnkit.get_include())
        theirs = Path(__file__).resolve().parents[2] / "include"
        for path in [*theirs.glob("*.h*"), *theirs.glob("attnkit/*.h")]:
            self.assertEqual((folder / path.relative_to(theirs)).read_bytes(), path.read_bytes())
        self.assertGreater(len(list(folder.rglob("*.h"))), 5)

    def test_functions_are_exported(self):
        library = ctypes.CDLL(_core.__file__)
        library.attnkit_version.restype = ctypes.c_char_p
        self.assertEqual(library.attnkit_version().decode(), attnkit.__version__)

    def test_import_brings_neither_torch_nor_sleef(self):
        code = ("import sys, attnkit; print([name for name in sys.modules if name.split('.')[0] in "
                "('torch', 'ml_dtypes', 'safetensors')], 'sleef' in open('/proc/self/maps').read())")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout.strip(), "[] False")

    def test_type_stubs_agree_with_the_signatures(self):
        self.assertTrue((FOLDER / "py.typed").exists())
        stubs = {node.name: node for node in ast.parse((FOLDER / "_core.pyi").read_text()).body
                 if isinstance(node, ast.FunctionDef)}
        public = [name for name in attnkit.__all__ if getattr(attnkit, name) is getattr(_core, name, None)]
        self.assertEqual(len(public), 6)
        for name in public:
            stub, signature = stubs[name].args, inspect.signature(getattr(attnkit, name))
            by_place = [a.arg for a in stub.args]
            self.assertEqual(by_place + [a.arg for a in stub.kwonlyargs], list(signature.parameters))
            kinds = [p.name for p in signature.parameters.values() if p.kind == p.POSITIONAL_OR_KEYWORD]
            self.assertEqual(kinds, by_place)
            defaults = [None] * (len(by_place) - len(stub.defaults)) + stub.defaults + stub.kw_defaults
            for parameter, default in zip(signature.parameters.values(), defaults):
                self.assertEqual(parameter.default, inspect.Parameter.empty if default is None else default.value)
        self.assertEqual({name for name in stubs}, {name for name in dir(_core) if not name.startswith("_")})

    def test_all_is_documented(self):
        for name in attnkit.__all__:
            thing = getattr(attnkit, name)
            self.assertGreater(len(inspect.getdoc(thing) or ""), 60, name)
            for member, value in vars(thing).items() if inspect.isclass(thing) else ():
                if not member.startswith("_"):
                    self.assertTrue(inspect.getdoc(value), f"{name}.{member}")
        for name in inspect.signature(attnkit.attention).parameters:
            self.assertRegex(attnkit.attention.__doc__, rf"\b{name}\b")


class Threads(unittest.TestCase):
    """Tests the threads of a call, and Python threads."""

    def test_any_number_has_the_same_bits(self):
        q, k = drawn(1, 1, 4, 70, 64), drawn(2, 1, 2, 3000, 64)
        one = attnkit.attention(q, k, k)
        for threads in (1, 2, 3, 8, 33):
            self.assertEqual(attnkit.attention(q, k, k, threads=threads).tobytes(), one.tobytes())

    def test_calls_of_several_threads(self):
        q, k = drawn(1, 1, 4, 70, 64), drawn(2, 1, 2, 900, 64)
        expected, wrong = attnkit.attention(q, k, k).tobytes(), []

        def work(threads):
            for _ in range(10):
                if attnkit.attention(q, k, k, threads=threads).tobytes() != expected:
                    wrong.append(threads)
        workers = [threading.Thread(target=work, args=(1 + i % 3,)) for i in range(6)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        self.assertEqual(wrong, [])

    def test_lock_is_released(self):
        """Another thread counts while a call runs. If the call held the global interpreter lock, the other thread could
        not count at all."""
        q = drawn(1, 1, 8, 2000, 64)
        counts, stop = [0], threading.Event()

        def count():
            while not stop.is_set():
                counts[0] += 1
                time.sleep(0.001)
        worker = threading.Thread(target=count)
        worker.start()
        time.sleep(0.05)
        before = counts[0]
        attnkit.attention(q, q, q)
        during = counts[0] - before
        stop.set()
        worker.join()
        self.assertGreater(during, 2)

    def test_forked_child(self):
        q = drawn(1, 1, 4, 600, 64)
        expected = attnkit.attention(q, q, q, threads=3).tobytes()
        context = multiprocessing.get_context("fork")
        answers = context.Queue()
        child = context.Process(target=attend_in_child, args=(q, expected, answers))
        child.start()
        self.assertTrue(answers.get(timeout=60))
        child.join()
        self.assertEqual(np.frombuffer(attnkit.attention(q, q, q, threads=3).tobytes()).tobytes(), expected)


if __name__ == "__main__":
    unittest.main()
