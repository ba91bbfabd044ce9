#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that no function of the tree has more than 9 parameters. At a call, many arguments are hard to tell apart. The
script counts the parameters of declarations, definitions and function pointers, including function pointers in structs
and parameters. The script also tests its own counting."""

import re
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ["include", "kernels", "dispatch", "ggml", "python", "bench", "tools", "tests", "examples"]
SUFFIXES = {".c", ".h", ".cc", ".cpp", ".hpp"}
MOST = 9

IGNORED = re.compile(r"""/\*.*?\*/ | //[^\n]*              # comments
                         | "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*'
                         | ^[ \t]*\#(?:\\\n|/\*.*?\*/|[^\n])*  # preprocessor lines""",
                     re.S | re.M | re.X)
# The text before a brace that encloses declarations.
DECLARATIONS = re.compile(r'(\b(struct|union|class|namespace)\b[^;{}()=]*|\bextern "")\s*$')
# The text before a parenthesis that encloses parameters: a function's name, or a pointer in parentheses.
DECLARATOR = re.compile(r"(\w+|\))\s*$")
NO_FUNCTIONS = {"__attribute__", "__declspec", "_Alignas", "alignas", "_Static_assert",
                "static_assert", "sizeof", "_Generic", "__asm__", "asm", "__typeof__"}
REACH = 300  # how many characters before a bracket are searched for DECLARATIONS and DECLARATOR


def without_texts(source):
    """Returns the source without comments, preprocessor lines and the contents of literals. Line numbers do not
    change."""
    def blank(match):
        text = match.group()
        newlines = "\n" * text.count("\n")
        return text[0] * 2 + newlines if text[0] in "\"'" else " " + newlines
    return IGNORED.sub(blank, source)


def without_template_arguments(source):
    """Returns the source without C++ template arguments, because their commas do not separate parameters."""
    while (less := re.sub(r"<[^<>;(){}]*>", " ", source)) != source:
        source = less
    return source


def count_of(parameters):
    """Returns how many parameters the text between parentheses has. Nested brackets in the text must be empty."""
    names = [part.strip() for part in parameters.split(",")]
    return len([name for name in names if name not in ("", "void", "...")])


class Bracket:
    """An open bracket. `kind` is its character, and `at` is its place in the source. `hidden` says whether the bracket
    opens, or lies in, a function body, an initialiser, the constants of an enum, or square brackets. `held` is the text
    read so far inside the bracket, with nested brackets emptied."""

    def __init__(self, kind, at, hidden):
        self.kind, self.at, self.hidden, self.held = kind, at, hidden, ""


def functions(source):
    """Yields (line, name, number of parameters) for every declaration, definition or pointer of a function. Leaves out
    hidden brackets (see Bracket). Raises ValueError if the source has more opening than closing brackets, or if a
    closing bracket has no opening bracket before it."""
    text = without_texts(source)
    opened, end, pointer = [], 0, None
    for found in re.finditer(r"[()\[\]{}]", text):
        kind, at = found.group(), found.start()
        if opened:
            opened[-1].held += text[end:at]
        end = at + 1
        if kind in "([{":
            outside = kind == "(" or kind == "{" and DECLARATIONS.search(text[max(0, at - REACH):at])
            opened.append(Bracket(kind, at, not outside or bool(opened) and opened[-1].hidden))
            continue
        if not opened:
            raise ValueError(f"line {text.count(chr(10), 0, at) + 1}: a bracket too many")
        last = opened.pop()
        if opened:
            opened[-1].held += last.kind + kind
        name = DECLARATOR.search(text[max(0, last.at - REACH):last.at])
        if last.kind != "(" or last.hidden or not name or name.group(1) in NO_FUNCTIONS:
            continue
        if last.held.lstrip().startswith("*"):  # the declarator of a pointer: (*name)
            pointer = last.held.strip("* \n") or "a pointer"
            continue
        yield (text.count("\n", 0, last.at) + 1, pointer if name.group(1) == ")" else name.group(1),
               count_of(last.held))
    if opened:
        raise ValueError(f"line {text.count(chr(10), 0, opened[-1].at) + 1}: not closed")


def too_long(path):
    source = path.read_text()
    if path.suffix not in (".c", ".h"):
        source = without_template_arguments(source)
    return [f"{path}:{line}: {name} has {count} parameters" for line, name, count in functions(source)
            if count > MOST]


class Counting(unittest.TestCase):
    def counts(self, source):
        return [(name, count) for _, name, count in functions(source)]

    def test_declarations_and_definitions(self):
        self.assertEqual(self.counts("int f(int a, float *b);"), [("f", 2)])
        self.assertEqual(self.counts("static int f(void) { return g(1, 2, 3); }"), [("f", 0)])
        self.assertEqual(self.counts("int f();"), [("f", 0)])
        self.assertEqual(self.counts("void say(const char *format, ...);"), [("say", 1)])
        self.assertEqual(self.counts("void f(float x[3], int (*y)[4], struct p { int a, b; } z);"),
                         [("f", 3)])

    def test_attributes_and_lines(self):
        source = ("/* f(a, b, c) */\n"
                  "static inline __attribute__((always_inline, unused)) void\n"
                  "f(int a, // , ,\n"
                  "  char b)\n{\n}\n_Static_assert(sizeof(int) == 4, \"f(,,,)\");\n")
        self.assertEqual(list(functions(source)), [(3, "f", 2)])

    def test_literals_and_preprocessor_lines(self):
        self.assertEqual(self.counts("#define F(a, b, \\\n  c) (a) /* (\n( */\nconst char *s = \"(\\\"{\", c = '(';\n"
                                     "int f(int a);"), [("f", 1)])

    def test_pointers_to_functions(self):
        self.assertEqual(self.counts("struct s { int n; void (*call)(int a, int b, int c);\n"
                                     "union { int (*g)(char d); }; };"), [("call", 3), ("g", 1)])
        self.assertEqual(self.counts("void sort(int n, int (*less)(int a, int b));"),
                         [("less", 2), ("sort", 2)])
        self.assertEqual(self.counts("typedef int (*less_t)(int, int);"), [("less_t", 2)])
        self.assertEqual(self.counts("int f(void (*)(int, int, int));"), [("a pointer", 3), ("f", 1)])

    def test_bodies_and_initialisers_are_left_out(self):
        self.assertEqual(self.counts("int f(int a) { if (a) { g(a, a, a); } return h(a, a); }\n"
                                     "int x = {k(1, 2)}; enum e { E = m(1, 2, 3) };"), [("f", 1)])

    def test_cpp(self):
        source = 'extern "C" {\nint f(int a);\n}\nnamespace n { class c { void g(map<int, p<a, b>> m); }; }'
        self.assertEqual(self.counts(without_template_arguments(source)), [("f", 1), ("g", 1)])

    def test_brackets_that_do_not_match_are_an_error(self):
        with self.assertRaises(ValueError):
            list(functions("int f(int a)) ;"))
        with self.assertRaises(ValueError):
            list(functions("int f(int a"))

    def test_ten_parameters_are_too_many(self):
        parameters = [f"int p{i}" for i in range(MOST + 1)]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "f.c")
            path.write_text(f"void f({', '.join(parameters[1:])});")
            self.assertEqual(too_long(path), [])
            path.write_text(f"\nvoid f({', '.join(parameters)});")
            self.assertEqual(too_long(path), [f"{path}:2: f has 10 parameters"])


class Tree(unittest.TestCase):
    def test_no_function_has_more_than_9_parameters(self):
        paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*"))
                 if path.suffix in SUFFIXES]
        self.assertGreater(len(paths), 100)
        self.assertEqual([wrong for path in paths for wrong in too_long(path)], [])

    def test_the_functions_of_a_file_are_found(self):
        found = [name for _, name, _ in functions((ROOT / "kernels" / "kernels.h").read_text())]
        for name in ("bytes_of", "widen", "scores", "softmax", "few_product"):
            self.assertIn(name, found)


if __name__ == "__main__":
    unittest.main()
