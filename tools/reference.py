#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads the public headers and prints one of them in Doxygen's form. docs/Doxyfile.in names this script as the filter.

    tools/reference.py HEADER

A section of a header becomes a page. A section begins with a comment whose first line is dashes. The comment above a
declaration documents the declaration. A field or constant has a comment after it on the same line, or is named in the
comment above its paragraph. If a field is alone in its paragraph, the comment above the paragraph need not name the
field. A field of a struct attnkit_..._data that has neither comment gets a reference to the field of the same name in a
struct from which a plan is made. The text of a function attnkit_..._init is made from its name.
tests/repository/reference.py finds declarations without a comment."""

import re
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

INCLUDE = Path(__file__).resolve().parents[1] / "include"
HEADERS = [INCLUDE / "attnkit.h"] + [INCLUDE / "attnkit" / f"{name}.h" for name in (
    "options", "merge", "cache", "linear", "layer")]
RULER = re.compile(r"^-{20,}\n?")


@dataclass
class Member:
    """A field of a struct or a constant of an enum."""
    code: str
    name: str
    own: str  # the comment after the member on the same line
    shared: str  # the comment above the paragraph of the member
    first: str  # the first member of the paragraph
    alone: bool = False  # whether the member is alone in the paragraph


@dataclass
class Item:
    """A section or a declaration, at the left margin of a header."""
    kind: str  # section, define, struct, enum, typedef, function
    name: str
    code: str = ""
    text: str = ""
    members: list = field(default_factory=list)


def inside(comment):
    """Returns the text of a comment without the comment marks and without the " * " before its lines."""
    body = re.sub(r"^/\*+|\*/$", "", comment.strip())
    lines = [re.sub(r"^\s*\* ?", "", line) for line in body.split("\n")]
    return "\n".join([lines[0].strip(), *lines[1:]]).strip()


def name_of(code):
    pointer = re.search(r"\(\*(\w+)\)", code)
    if pointer:
        return pointer[1]
    return re.search(r"(\w+)(?:\[\w+\])?(?: = \w+)?[,;]?$", code)[1]


def members_of(body):
    found, shared, paragraph = [], "", []
    token = re.compile(r"(?P<gap>\n[ ]*\n)|(?P<comment>/\*.*?\*/)|(?P<code>[^\s/](?:[^;,/]|,(?=[^\n]*\)))*[;,]?)",
                       re.S)
    for match in token.finditer(body):
        text = match.group()
        if match["gap"]:
            shared, paragraph = "", []
        elif match["code"]:
            name = name_of(" ".join(text.split()))
            member = Member(text.strip(), name, "", shared, paragraph[0].name if paragraph else name)
            paragraph.append(member)
            found.append(member)
            for other in paragraph:
                other.alone = len(paragraph) == 1
        elif body[:match.start()].rpartition("\n")[2].strip():
            found[-1].own = inside(text)
        else:
            shared, paragraph = inside(text), []
    return found


PATTERNS = [
    ("define", re.compile(r"#define (\w+) [^\n]*")),
    ("struct", re.compile(r"typedef struct (\w+) \{\n(.*?)^\} \w+;", re.S | re.M)),
    ("enum", re.compile(r"typedef enum (\w+) \{\n(.*?)^\} \w+;", re.S | re.M)),
    ("enum", re.compile(r"enum() \{\n(.*?)^\};", re.S | re.M)),
    ("typedef", re.compile(r"typedef \w+ (\w+);")),
    ("function", re.compile(r"ATTNKIT_API [^;(]*?\b(attnkit_\w+)\([^;]*;", re.S)),
    ("function", re.compile(r"static inline void (\w+)\([^)]*\)(?=\n\{)")),
]


def read_header(path):
    """Returns the comment at the top of a header, and the items of the header."""
    text = path.read_text()
    head, rest = re.match(r"(/\*.*?\*/)(.*)", text, re.S).groups()
    items, pending, at = [], "", 0
    while at < len(rest):
        comment = re.compile(r"/\*.*?\*/", re.S).match(rest, at)
        if comment:
            inner, at = inside(comment.group()), comment.end()
            if RULER.match(inner):
                inner = RULER.sub("", inner)
                items += [Item("section", "", text=inner)] if inner else []
                inner = ""
            pending = inner if rest.startswith("\n", at) and not rest.startswith("\n\n", at) else ""
            at += 1
            continue
        for kind, pattern in PATTERNS:
            match = pattern.match(rest, at)
            if match and not (kind == "define" and re.search(r"_(H|API)\b", match[0])):
                add(items, kind, match, pending)
                at = match.end()
                break
        pending = ""
        at = rest.find("\n", at) + 1 or len(rest)
    return inside(head).replace("SPDX-License-Identifier: Apache-2.0\n\n", ""), items


def add(items, kind, match, pending):
    code, name = match.group(), match[1]
    item = Item(kind, name, code, pending)
    if kind in ("struct", "enum"):
        item.members = members_of(match[2])
    if kind == "define":
        code, _, comment = code.partition("/*")
        item.code, item.text = code.strip(), inside("/*" + comment) if comment else pending
    if kind == "enum" and not name:  # the values of an enum without a name belong to the type above
        item.name, item.text = items[-1].name, f"Values of {items[-1].name}."
    items.append(item)


def structs_of_plan(name, structs):
    """Returns the structs that may describe the fields of the struct `name`, an attnkit_..._data."""
    if name == "attnkit_attention_group_data":
        return [struct for key, struct in structs.items() if not key.endswith("_data")]
    base = structs[name.replace("_data", "_args")]
    return [base] + [structs[key] for key in structs if not key.endswith(("_data", "_args"))]


def is_data(name):
    return name.endswith("_data")


def member_text(item, member, structs):
    """Returns the documentation of a field, or "" if there is none."""
    if member.own:
        return member.own
    if member.shared and (member.alone or re.search(rf"\b{member.name}\b", member.shared)):
        return member.shared if member.first == member.name else f"See {member.first}."
    if is_data(item.name):
        for struct in structs_of_plan(item.name, structs):
            if any(other.name == member.name for other in struct.members):
                return f"The {struct.name}::{member.name} of this run."
    return ""


def item_text(item):
    if item.kind == "function" and item.name.endswith("_init"):
        return f"Sets `size` of a struct {item.name[:-5]} to the size of the struct, and all other fields to zero."
    return item.text


def all_items():
    return {path: read_header(path) for path in HEADERS}


def structs_in(headers):
    return {item.name: item for _, items in headers.values() for item in items if item.kind == "struct"}


# ------------------------------------------------------------------------- text for Doxygen


def as_running_text(text, links):
    text = re.sub(r'([\\@<>&#%"])', r"\\\1", text)
    return re.sub(r"\b(attnkit_\w+|ATTNKIT_\w+)\b(?!\(|\.\.|\.h)", lambda match: links.get(match[1], match[1]), text)


def parts_of(block):
    """Splits a block, which has no empty line, into parts: pairs (whether the lines are indented, lines). The first
    line of a list and all lines after it do not count as indented."""
    parts, in_list = [], False
    for line in block.split("\n"):
        in_list = in_list or bool(re.match(r" +- ", line))
        indented = not in_list and line.startswith("    ")
        if parts and parts[-1][0] == indented:
            parts[-1][1].append(line)
        else:
            parts.append((indented, [line]))
    return parts


def for_doxygen(text, links):
    """Formats a text for Doxygen. Formulas (indented lines) and tables (lines with wide gaps between words) are kept
    literally; everything else is running text."""
    output = []
    for block in re.split(r"\n *\n", text):
        for indented, lines in parts_of(block):
            if indented or any(re.search(r"\S {3,}\S", line) for line in lines):
                output.append(f"@verbatim\n{textwrap.dedent(chr(10).join(lines))}\n@endverbatim")
            else:
                output.append(as_running_text("\n".join(lines), links))
    return "\n\n".join(output)


def comment_of(text, links, *before):
    return "/** " + "\n".join([*before, for_doxygen(text, links)]) + "\n */\n"


def links_to(headers):
    links = {}
    for _, items in headers.values():
        for item in items:
            links[item.name] = f"{item.name}()" if item.kind == "function" else (
                item.name if item.kind == "struct" else f"#{item.name}")
            if item.kind == "enum":
                links |= {member.name: f"#{member.name}" for member in item.members}
    return links


def title_and_text(text):
    match = re.match(r"(.+?)[.:](?:\s+|$)(.*)", text, re.S)
    return " ".join(match[1].split()), match[2][:1].upper() + match[2][1:]


def member_lines(item, structs, links):
    for member in item.members:
        text = member_text(item, member, structs)
        yield comment_of(text, links) if text else ""
        yield member.code + "\n"


def item_lines(item, structs, links):
    text = item_text(item)
    if item.name.endswith("_init"):
        yield comment_of(text, links, "@ingroup init\n")
    elif text:
        yield comment_of(text, links)
    if not item.members:
        yield item.code.replace("ATTNKIT_API ", "") + (" {}" if "inline" in item.code else "") + "\n"
        return
    first, last = item.code.split("\n")[0], item.code.split("\n")[-1]
    yield first + "\n"
    yield from member_lines(item, structs, links)
    yield last + "\n"


def page_of(title):
    return re.sub(r"\W+", "_", title.lower())


def pages_in_order(headers):
    """Yields definitions of the pages in the order of HEADERS. Doxygen shows pages in the order in which it reads them.
    Without these definitions, Doxygen would show the pages in the alphabetical order of the files."""
    titles = [title_and_text(item.text)[0] for _, items in headers.values() for item in items
              if item.kind == "section"]
    yield from (f"/** @defgroup {page_of(title)} {title} */\n" for title in titles)
    yield ("/** @defgroup init Default values\n"
           "For languages, and standards of C++, without designated initialisers. */\n")


def doxygen_header(path):
    headers = all_items()
    structs, links = structs_in(headers), links_to(headers)
    head, items = headers[path]
    output = [comment_of(head, links, "@mainpage attnkit\n")] if path == HEADERS[0] else []
    if path == HEADERS[0]:
        output += pages_in_order(headers)
    output.append(f"/** @file {path.name}\n{path.name} of the public headers. */\n")
    open_section = False
    for item in items:
        if item.kind == "section":
            title, text = title_and_text(item.text)
            output.append("/** @} */\n" if open_section else "")
            output.append(comment_of(text, links, f"@addtogroup {page_of(title)}\n") + "/** @{ */\n")
            open_section = True
        else:
            output += item_lines(item, structs, links)
    output.append("/** @} */\n" if open_section else "")
    return "".join(output)


if __name__ == "__main__":
    sys.stdout.write(doxygen_header(Path(sys.argv[1]).resolve()))
