#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Finds the cost of the kernels' compiled inner loops without running them.

    tools/static/loops.py BUILD_FOLDER

Disassembles the objects of scores, weighted_v, softmax, the parts of decode, linear maps, and products of integers and
of bf16. Follows every innermost loop with FMAs along its most used path. In kernels of integers, an instruction that
multiplies integers counts as an FMA. The most used path is taken to be the shortest of the paths with the most FMAs,
which leaves out prefetches and changes of scale that are not needed in every iteration. Loops of a kernel (and of a
type, if the kernel has a function for each type) with the same number of FMAs share a line of the output. After the
numbers of FMAs and of loops, the line has three figures: instructions for each FMA, loads into vector or tile registers
for each FMA (a broadcast from memory counts as a load), and loads and stores of spilled vectors. For each CPU model,
the line also has the FMAs per cycle by llvm-mca 19, in percent of the FMAs that the CPU can start in a cycle. Kernels
of integers, and all kernels of units (such as avx512_bf16), have no percentage. Each figure of a line is the worst
figure of the loops that share the line.

llvm-mca does not model caches, instruction fetch or store-to-load forwarding.

Fails if a full tile breaks a limit. The full tile of a kernel is its loop with the most FMAs. Only the kernels in TILES
and TILES_OF_UNIT have limits. Also fails if a figure differs from the stored figure in tools/static/loops/, even if the
new figure is better. A change of kernels must include the new figures, which `tools/figures --write` stores. Figures
are stored for each instruction set and compiler. Code of a compiler without stored figures, or of a build with c_args,
only has to keep the limits. The exit status is 77 if the build is instrumented, or if there are no objects that this
script can read."""

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

from stored_figures import (ADVICE, SKIPPED, Difference, build_options, compiler, is_count,
                            is_instrumented, print_differences, read, run)

STORE = Path(__file__).resolve().parent / "loops"
KERNELS = ["scores", "weighted_v", "softmax", "decode", "decode_k", "decode_tiled_k", "decode_v",
           "grouped", "linear", "product"]
INTEGERS = ["panel", "integers", "maps"]  # kernels that multiply integers: prefill, decode, linear maps
TILES = ["scores", "weighted_v"]  # the limits apply to their full tiles; units have TILES_OF_UNIT instead
TILES_OF_UNIT = {"avx2_vnni": [], "avx512_vnni": ["panel", "maps"], "avx512_bf16": ["scores", "product"],
                 "avx512_amx": ["grouped"], "neon_dotprod": [], "neon_i8mm": []}
TYPES = re.compile(r"_(f32|f16|bf16|i8|q8_0)(\.|$)")  # the type at the end of a function's name
LEAST_PERCENT = 90
# The most loads per FMA of a full tile. Ice Lake sustains little more than one load of a zmm per cycle. Sapphire Rapids
# starts two loads of a tile register in the time of a TDPBF16PS. With at most one load per TDPBF16PS, the loads do not
# limit the speed. With VNNI, the loop of `panel` with the most FMAs computes scores of 4 keys for 2 vectors of query
# rows. An iteration takes a block of 32 elements of K: 6 loads for each 8 of its 128 FMAs, and 6 loads of scales.
MOST_LOADS = {"avx512": 0.5, "avx512_vnni": 0.8, "avx512_amx": 1}
MCA = "llvm-mca-19"  # a fixed version, because the models, and with them the figures, differ between versions
COUNTED = {"instructions", "loads", "spills"}  # the counts of a loop; its other figures are cycles on each CPU
PADDING = re.compile(r"\bnop|^xchg\s+%ax,%ax$")  # instructions that only align the next instruction
# The difference of two runs of llvm-mca gives the cycles of an iteration, without the time to fill the pipeline.
ITERATIONS = 50, 150

# `comment` is how objdump begins a comment. `cpus` has models of llvm-mca, and how many FMAs they start in a cycle. The
# fields after `cpus` match text of instructions. `fma` matches multiply-adds of floats, and `products` matches
# instructions that multiply integers. `jump` matches a jump or call, whose target is its last operand. `leaves` matches
# calls, and instructions that do not continue with the next instruction. `fused` matches instructions that form one
# operation with a jump after them, which llvm-mca does not model. `memory` matches a memory operand. `spill` is the
# pattern of a place in the stack frame. `copies_sp` matches an instruction that makes a frame pointer.
Machine = namedtuple("Machine", "name triple comment cpus jump leaves fused fma products memory spill"
                                " copies_sp")
X86 = {
    "name": "X86-64", "triple": "x86_64-linux-gnu", "comment": "#",
    "jump": re.compile(r"(j[a-z]+|call)\s"),
    "leaves": re.compile(r"(notrack )?(jmp|call|ret|ud2)\b"),
    "fused": re.compile(r"(cmp|test|add|sub|inc|dec|and)[lq]?\s"),
    "fma": re.compile(r"vfn?m(add|sub)\d+ps\s"),
    "products": re.compile(r"vpmaddwd\s"),
    "memory": re.compile(r"\("),
    # An operand with an index register belongs to an array, not to a spill.
    "spill": r"\(%{}\)", "copies_sp": re.compile(r"mov\s+%rsp,%(rbp)$"),
}
ARM = {
    "name": "AArch64", "triple": "aarch64-linux-gnu", "comment": "//",
    "jump": re.compile(r"(b|b\.[a-z]+|bl|blr|br|cbn?z|tbn?z)\s"),
    "leaves": re.compile(r"(b|bl|blr|br|ret)(\s|$)"),
    "fused": None,
    "fma": re.compile(r"fml[as]\s"),
    "products": re.compile(r"smlal2?\s"),
    "memory": re.compile(r"\["),
    "spill": r"\[{}(, #-?\w+)?\]", "copies_sp": re.compile(r"mov\s+(x29), sp$"),
}
MACHINES = {
    "avx2": Machine(cpus={"haswell": 2, "znver3": 2}, **X86),
    "avx2_vnni": Machine(cpus={}, **{**X86, "products": re.compile(r"vpdp(wss|bus)d\s")}),
    # Three models of llvm-mca 19 are not used. Its Ice Lake and Sapphire Rapids start one FMA of a zmm in a cycle, but
    # the real CPUs start two. In its Zen 4, broadcasts from memory are too slow.
    "avx512": Machine(cpus={"skylake-avx512": 2}, **X86),
    # VPDPWSSD adds 2 products of integers to each of 16 sums, and VPDPBUSD adds 4.
    "avx512_vnni": Machine(cpus={}, **{**X86, "products": re.compile(r"vpdp(wss|bus)d\s")}),
    # No model of llvm-mca 19 is used: none starts one VDPBF16PS of a zmm in a cycle, as a Zen 4 does.
    "avx512_bf16": Machine(cpus={}, **{**X86, "fma": re.compile(r"vdpbf16ps\s")}),
    # A multiply-add is a TDPBF16PS, which adds 32 products to each of 256 sums. llvm-mca 19 has no model of it.
    "avx512_amx": Machine(cpus={}, **{**X86, "fma": re.compile(r"tdpbf16ps\s")}),
    "neon": Machine(cpus={"neoverse-n1": 2, "neoverse-v2": 4}, **ARM),
    "neon_dotprod": Machine(cpus={}, **{**ARM, "products": re.compile(r"sdot\s")}),
    "neon_i8mm": Machine(cpus={}, **{**ARM, "products": re.compile(r"(smmla|sdot)\s")}),
}

# A basic block: instructions that are entered only at the first instruction and left only at the last instruction.
# `next` has the blocks that may follow.
Block = namedtuple("Block", "texts fmas next")

# A loop. `kernel` names the kernel and the type. `cycles` has the cycles of an iteration for each model.
Loop = namedtuple("Loop", "kernel fmas instructions loads spills cycles text")


# ---------------------------------------------------------------------------------- the objects


def objects(build, isa):
    """Returns a dict: kernel -> path of its object."""
    found = {}
    for kernel in [*KERNELS, *INTEGERS]:
        for path in (build / "kernels" / f"libattnkit_{isa}.a.p").glob(f"*_{kernel}.c.o"):
            found[kernel] = path
    return found


def tool_for(machine, path):
    """Returns the name of an objdump that can read the object: the native objdump, or the objdump of a cross compiler.
    Returns None if there is no such objdump."""
    for tool in ("objdump", machine.triple + "-objdump"):
        if shutil.which(tool) and subprocess.run([tool, "-d", path],
                                                 capture_output=True).returncode == 0:
            return tool
    return None


def functions(machine, tool, path):
    """Yields the name of each function, and the pairs (address, text) of its instructions."""
    listing = run([tool, "-d", "--no-show-raw-insn", path])
    parts = re.split(r"^[0-9a-f]+ <(.*)>:$", listing, flags=re.M)[1:]
    for name, part in zip(parts[::2], parts[1::2]):
        lines = re.findall(r"^\s*([0-9a-f]+):\s+(?:\{vex\} )?(.*?)\s*$", part, re.M)
        yield name, [(int(address, 16), re.sub(rf"\s+{machine.comment}.*", "", text))
                     for address, text in lines]


# ------------------------------------------------------------------------------------ the loops


def blocks_of(machine, function):
    """Returns the basic blocks of a function. A block with a call has no successor, so that loops with calls are left
    out."""
    at = {address: i for i, (address, _) in enumerate(function)}
    targets = {}
    for i, (_, text) in enumerate(function):
        target = machine.jump.match(text) and re.search(r"([0-9a-f]+) <[^>]*>$", text)
        if target and int(target[1], 16) in at:
            targets[i] = at[int(target[1], 16)]
    ends = [i + 1 for i, (_, text) in enumerate(function)
            if machine.jump.match(text) or machine.leaves.match(text)]
    jumped_to = set(targets.values())
    starts = sorted({0, *jumped_to, *ends} - {len(function)})
    number = {start: block for block, start in enumerate(starts)}
    blocks = []
    for start, end in zip(starts, [*starts[1:], len(function)]):
        texts = [text for _, text in function[start:end]]
        is_call = re.match(r"call|blr?\s", texts[-1])
        following = [number[targets[end - 1]]] if end - 1 in targets and not is_call else []
        if not machine.leaves.match(texts[-1]) and end in number:
            following.append(number[end])
        texts = [text for text in texts if not PADDING.search(text)]
        if not texts and start and machine.leaves.match(function[start - 1][1]) and start not in jumped_to:
            following = []  # only alignment after a jump: no path goes through this block
        fmas = sum(bool(machine.fma.match(text)) for text in texts)
        blocks.append(Block(texts, fmas, following))
    return blocks


def flow_order(blocks):
    """Returns the blocks in the order of the control flow without jumps back (reverse postorder), and the entries. The
    first block is an entry. A later block is an entry if no path leads to it from an earlier entry. Examples are blocks
    that are reached only by the return of a call, or only through a table of addresses."""
    order, seen, entries = [], set(), []
    for entry in range(len(blocks)):
        if entry in seen:
            continue
        entries.append(entry)
        seen.add(entry)
        part, stack = [], [(entry, iter(blocks[entry].next))]
        while stack:
            block, following = stack[-1]
            after = next((b for b in following if b not in seen), None)
            if after is None:
                part.append(block)
                stack.pop()
            else:
                seen.add(after)
                stack.append((after, iter(blocks[after].next)))
        order = part[::-1] + order
    return order, entries


def dominators(order, entries, before):
    """Returns a dict: block -> its dominators, which are the blocks on every path from an entry to the block, including
    the block itself. `before` is a dict: block -> the blocks that it may follow."""
    dominating = {block: set(order) for block in order} | {entry: {entry} for entry in entries}
    changed = True
    while changed:
        changed = False
        for block in order:
            if block not in entries:
                through = set.intersection(*(dominating[b] for b in before[block])) | {block}
                changed |= through != dominating[block]
                dominating[block] = through
    return dominating


def body_of(head, ends, before):
    """Returns the blocks of a loop: its head, and all blocks from which a path leads to one of `ends` without passing
    the head. `ends` are the blocks that jump back to the head. `before` is a dict: block -> the blocks that it may
    follow."""
    body, stack = {head}, list(ends)
    while stack:
        block = stack.pop()
        if block not in body:
            body.add(block)
            stack += before[block]
    return body


def best_way(blocks, body, head, ends, order):
    """Returns (FMAs, minus the number of instructions, blocks) of the best path from the head of a loop to one of
    `ends`, the blocks that jump back to the head. The best path has the most FMAs and, among the paths with the most
    FMAs, the fewest instructions."""
    ways = {head: (blocks[head].fmas, -len(blocks[head].texts), [head])}
    place = {block: i for i, block in enumerate(order)}
    for block in (b for b in order if b in body and b in ways):
        fmas, cost, way = ways[block]
        for after in blocks[block].next:
            if after in body and place[after] > place[block]:
                new = (fmas + blocks[after].fmas, cost - len(blocks[after].texts), [*way, after])
                ways[after] = max(ways.get(after, new), new)
    return max((ways[end] for end in ends if end in ways), default=(0, 0, []))


def inner_loops(machine, function):
    """Yields the instructions of the best path through each loop that has FMAs on this path. Leaves out a loop that
    contains another of these loops."""
    blocks = blocks_of(machine, function)
    order, entries = flow_order(blocks)
    before = {block: [] for block in order}
    for block in order:
        for after in blocks[block].next:
            before[after].append(block)
    dominating = dominators(order, entries, before)
    loops = []
    for head in order:
        ends = [b for b in before[head] if head in dominating[b]]
        if ends:
            body = body_of(head, ends, before)
            fmas, _, way = best_way(blocks, body, head, ends, order)
            if fmas:
                loops.append((head, body, way))
    for head, body, way in loops:
        if not any(other in body and other != head for other, _, _ in loops):
            yield [text for block in way for text in blocks[block].texts]


def vectors_loaded(machine, text):
    """Returns how many vector or tile registers an instruction loads from memory."""
    if not machine.memory.search(text):
        return 0
    if machine.name == "X86-64":
        # The destination is the last operand. The destination of a store is memory.
        return int(re.match(r"(v.*,%[xyz]|tileload.*,%t)mm\d+(\{.*)?$", text) is not None)
    if not text.startswith("ld"):
        return 0
    operands = text.split(None, 1)[1].split("[")[0]
    span = re.search(r"v(\d+)\.\w+-v(\d+)", operands)
    if span:
        return (int(span[2]) - int(span[1])) % 32 + 1
    return len(re.findall(r"\b[vqds]\d+", operands))


def vectors_spilled(machine, function, body):
    """Returns how many instructions move a vector to or from a place in the stack frame."""
    copies = [machine.copies_sp.match(text) for _, text in function]
    bases = ["rsp" if machine.name == "X86-64" else "sp"] + [copy[1] for copy in copies if copy]
    spill = re.compile(machine.spill.format("(" + "|".join(bases) + ")"))
    vector = r"%[xyz]mm" if machine.name == "X86-64" else r"(ld|st)\w*\s+\{?[vqds]\d"
    return sum(bool(spill.search(text) and re.search(vector, text)) for text in body)


def loops_of(machine, kernel, tool, path):
    if kernel in INTEGERS:
        machine = machine._replace(fma=machine.products)
    for name, function in functions(machine, tool, path):
        of_type = TYPES.search(name)
        for body in inner_loops(machine, function):
            fmas = sum(bool(machine.fma.match(text)) for text in body)
            loads = sum(vectors_loaded(machine, text) for text in body)
            yield Loop(f"{kernel} {of_type[1]}" if of_type else kernel, fmas, len(body), loads,
                       vectors_spilled(machine, function, body), {}, body)


def assembly(machine, loops):
    """Returns the input of llvm-mca. Every loop is a region. A jump is left out if it forms one operation with the
    instruction before it. All other jumps go to the same label."""
    lines = []
    for i, loop in enumerate(loops):
        body = []
        for text in loop.text:
            if not machine.jump.match(text):
                body.append(text)
            elif not (machine.fused and body and machine.fused.match(body[-1])):
                body.append(re.sub(r"[0-9a-f]+ <.*>$", "away", text))
        lines += [f"/* LLVM-MCA-BEGIN {i} */", *body, f"/* LLVM-MCA-END {i} */"]
    return "\n".join(lines) + "\n"


def total_cycles(machine, cpu, iterations, text):
    """Returns the total cycles of each region."""
    report = json.loads(run([MCA, f"-mtriple={machine.triple}", f"-mcpu={cpu}",
                             f"-iterations={iterations}", "-json"], input=text))
    return [region["SummaryView"]["TotalCycles"] for region in report["CodeRegions"]]


def model_cycles(machine, loops):
    first, last = ITERATIONS
    text = assembly(machine, loops)
    for cpu in machine.cpus:
        totals = [total_cycles(machine, cpu, iterations, text) for iterations in ITERATIONS]
        for loop, early, late in zip(loops, *totals):
            loop.cycles[cpu] = (late - early) / (last - first)


# ---------------------------------------------------------------------------------- the figures


def figures(loops):
    """Returns a dict: 'kernel FMAs' -> figure -> its values in these loops, the worst first."""
    groups = {}
    kernels = list(dict.fromkeys(loop.kernel for loop in loops))
    for loop in sorted(loops, key=lambda loop: (kernels.index(loop.kernel), -loop.fmas)):
        group = groups.setdefault(f"{loop.kernel} {loop.fmas}", {})
        counts = {"instructions": loop.instructions, "loads": loop.loads, "spills": loop.spills,
                  **loop.cycles}
        for name, value in counts.items():
            group[name] = sorted(group.get(name, []) + [value], reverse=True)
    return groups


def fmas_of(key):
    return int(key.split()[-1])


def kernel_of(key):
    return key.rsplit(maxsplit=1)[0]


def percent(machine, key, cpu, cycles):
    return 100 * fmas_of(key) / machine.cpus[cpu] / cycles


def print_table(isa, built_by, now):
    machine = MACHINES[isa]
    cpus = [cpu for cpu in machine.cpus if any(cpu in group for group in now.values())]
    print(f"{isa}, {built_by}")
    print(f"  {'':19} {'FMAs':>4} {'loops':>5} {'instr/FMA':>9} {'loads/FMA':>9} {'spills':>6}"
          + "".join(f" {cpu + ' %':>13}" for cpu in cpus))
    for key, group in now.items():
        kernel, fmas = kernel_of(key), fmas_of(key)
        print(f"  {kernel:19} {fmas:4} {len(group['loads']):5}"
              f" {group['instructions'][0] / fmas:9.2f} {group['loads'][0] / fmas:9.2f}"
              f" {group['spills'][0]:6}"
              + "".join(f" {percent(machine, key, cpu, group[cpu][0]):13.1f}" if cpu in group
                        else f" {'':13}" for cpu in cpus))


def broken_limits(isa, now):
    """Yields the limits that full tiles break. The full tile of a kernel is its loop with the most FMAs."""
    machine = MACHINES[isa]
    for kernel in TILES_OF_UNIT.get(isa, TILES):
        key = next((key for key in now if kernel_of(key) == kernel), None)
        if key is None:
            yield f"{isa} {kernel}: no inner loop with FMAs"
            continue
        group = now[key]
        if group["spills"][0]:
            yield f"{isa} {key}: {group['spills'][0]} spills"
        loads = group["loads"][0] / fmas_of(key)
        if loads > MOST_LOADS.get(isa, loads):
            yield f"{isa} {key}: {loads:.2f} loads per FMA, at most {MOST_LOADS[isa]} are allowed"
        for cpu in machine.cpus:
            reached = percent(machine, key, cpu, group[cpu][0]) if cpu in group else 100
            if reached < LEAST_PERCENT:
                yield f"{isa} {key}: {reached:.1f} % on {cpu}, at least {LEAST_PERCENT} are needed"


def worst_change(old, new):
    """Returns the pair of values with the largest relative increase, from two different sorted lists of the same
    length."""
    pairs = [(a, b) for a, b in zip(old, new) if a != b]
    return max(pairs, key=lambda pair: pair[1] / pair[0] if pair[0] else float("inf"))


def differences(isa, now, stored, has_mca):
    """Yields the differences from the stored figures. Without llvm-mca, cycles are not compared."""
    for key in [*now, *(key for key in stored if key not in now)]:
        group, was = now.get(key), stored.get(key)
        if not group or not was:
            yield Difference(f"{isa} {key}", was and fmas_of(key), group and fmas_of(key))
        elif len(group["loads"]) != len(was["loads"]):
            yield Difference(f"{isa} {key}: loops", len(was["loads"]), len(group["loads"]))
        else:
            yield from differences_of(f"{isa} {key}", group, was, has_mca)


def differences_of(what, group, was, has_mca):
    for name in dict.fromkeys([*group, *was]):
        unit = name if name in COUNTED else f"cycles of {name}"
        if name in group and name in was:
            if group[name] != was[name]:
                yield Difference(f"{what}: {unit}", *worst_change(was[name], group[name]))
        elif name in COUNTED or has_mca:
            yield Difference(f"{what}: {unit}", was.get(name, [None])[0],
                             group.get(name, [None])[0])


# ------------------------------------------------------------------------------------ the files


def is_sound(stored):
    """Returns whether the file has the form compiler -> loops -> figure -> values."""
    return all(isinstance(groups, dict) and
               all(re.fullmatch(r"\S.* \d+", key) and isinstance(group, dict) and
                   COUNTED <= group.keys() and
                   all(isinstance(values, list) and len(values) == len(group["loads"]) > 0 and
                       all(map(is_count, values)) for values in group.values())
                   for key, group in groups.items())
               for groups in stored.values())


def stored_figures(isa):
    return read(STORE / f"{isa}.json", is_sound)


def write(isa, built_by, now):
    """Writes one line for each kernel and number of FMAs, so that a diff shows the changed loops."""
    everything = {**stored_figures(isa), built_by: now}
    parts = []
    for name in sorted(everything):
        lines = [f"  {json.dumps(key)}: {json.dumps(group)}"
                 for key, group in everything[name].items()]
        parts.append(f" {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n }")
    (STORE / f"{isa}.json").write_text("{\n" + ",\n".join(parts) + "\n}\n")


# -------------------------------------------------------------------------------------- the run


def has_mca():
    return shutil.which(MCA) is not None


def look_at(isa, paths, tool):
    """Returns the figures of the loops of an instruction set."""
    machine = MACHINES[isa]
    loops = [loop for kernel, path in paths.items()
             for loop in loops_of(machine, kernel, tool, path)]
    modelled = [loop for loop in loops if loop.kernel not in INTEGERS]
    if has_mca() and modelled:
        model_cycles(machine, modelled)
    return figures(loops)


def look_through(build):
    """Yields (isa, compiler, figures) of each instruction set whose objects can be read here."""
    for isa, machine in MACHINES.items():
        paths = objects(build, isa)
        tool = tool_for(machine, next(iter(paths.values()))) if paths else None
        if tool:
            yield isa, compiler(tool, next(iter(paths.values()))), look_at(isa, paths, tool)


def check(isa, built_by, now, comparable):
    """Prints the errors. Returns whether there are any."""
    wrong = list(broken_limits(isa, now))
    stored = stored_figures(isa).get(built_by) if comparable else None
    changed = []
    if stored is None:
        print(f"{isa}: no figures are stored for {built_by} with these flags: only the limits count")
    else:
        changed = list(differences(isa, now, stored, has_mca()))
    for text in wrong:
        print(f"WRONG: {text}")
    if changed:
        print(f"WRONG: the loops of {isa} are not as stored")
        print_differences(changed)
        print(ADVICE)
    return bool(wrong or changed)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("build", type=Path, metavar="BUILD_FOLDER")
    wish = arguments.parse_args()
    options = build_options(wish.build)
    if is_instrumented(options):
        print("loops.py: the build is instrumented, and releases are not: nothing to look at")
        return SKIPPED
    if not has_mca():
        print(f"loops.py: no {MCA} here (Debian's llvm-19): only the counts are checked, not the cycles")
    # With compiler flags of the user, such as -march=native, the loops are different.
    comparable = options.get("c_args") == []

    looked = list(look_through(wish.build))
    if not looked:
        print("loops.py: no vector kernels here that an objdump can read")
        return SKIPPED
    for of_isa in looked:
        print_table(*of_isa)
    failed = [check(*of_isa, comparable) for of_isa in looked]
    return 1 if any(failed) else 0


if __name__ == "__main__":
    sys.exit(main())
