#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the instructions in the objects of the static library. Code outside the folders of instruction sets may run
before the CPU has been checked, so it must keep to baseline x86-64. FORBIDDEN says which instructions the folder of an
instruction set or unit must not use.

    tests/repository/baseline.py BUILD_FOLDER
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Instructions beyond baseline x86-64, which only the folders of avx2, avx512 and their units may use: SSE3 to SSE4.2,
# lzcnt, movbe, AMX, all VEX and EVEX instructions (the mnemonic begins with v, or belongs to BMI), and instructions on
# mask registers. xgetbv is allowed, because the library executes xgetbv only if CPUID reports OSXSAVE.
SSE3_TO_SSE42 = ("addsubp[sd] haddp[sd] hsubp[sd] lddqu movddup movs[hl]dup pabs[bwd] palignr "
                 "ph(?:add|sub)s?[wd] pmaddubsw pmulhrsw pshufb psign[bwd] blendv?p[sd] dpp[sd] "
                 "extractps insertps movntdqa mpsadbw packusdw pblend(?:vb|w) pcmpeqq pcmp[ei]str[im] "
                 "pcmpgtq pextr[bdq] phminposuw pinsr[bdq] pm(?:ax|in)(?:s[bd]|u[dw]) pmov[sz]x[a-z]+ "
                 "pmuldq pmulld ptest round[ps][sd] popcnt crc32[a-z]* lzcnt movbe").split()
AMX = r"ldtilecfg sttilecfg tile\w+ tdp\w+".split()
BMI = "andn bextr bls[a-z]+ bzhi mulx pdep pext rorx sarx shlx shrx".split()
BEYOND_X86_64 = re.compile(
    r"\{vex\}|\t(v(?!err|erw|mcall)[a-z0-9]+|" + "|".join(SSE3_TO_SSE42 + BMI + AMX) + r")(\s|$)"
    r"|%[yz]mm|%k[0-7]")
BEYOND_YMM = r"%zmm|%k[0-7]|%[xy]mm(1[6-9]|2\d|3[01])"
# objdump prints {vex} before VNNI instructions of AVX-VNNI.
BEYOND_AVX2 = re.compile(BEYOND_YMM + r"|[\t ]v(?:dp|cvtne)\w*bf16|[\t ]vpdp")
BEYOND_AVX2_VNNI = re.compile(BEYOND_YMM + r"|[\t ]v(?:dp|cvtne)\w*bf16|[\t ]vpdp(?!busds?\s|wssds?\s)")
BEYOND_AVX512 = re.compile(r"[\t ](v(?:dp|cvtne)\w*bf16\w*|vpdp\w+|" + "|".join(AMX) + r")(\s|$)")
BEYOND_VNNI = re.compile(r"\{vex\}|\t(v(?:dp|cvtne)\w*bf16\w*|vpdp(?!busds?\s|wssds?\s)\w+|" + "|".join(AMX) + r")(\s|$)")
BEYOND_BF16 = re.compile(r"\t(" + "|".join(AMX) + r")(\s|$)")
# The instructions that the folder of an instruction set or unit must not use. The folder of a set or unit that is not
# listed may use any instruction. Code outside these folders must not use the instructions of BEYOND_X86_64.
FORBIDDEN = {"scalar": BEYOND_X86_64, "avx2": BEYOND_AVX2, "avx2_vnni": BEYOND_AVX2_VNNI, "avx512": BEYOND_AVX512,
             "avx512_vnni": BEYOND_VNNI, "avx512_bf16": BEYOND_BF16}


def objects_of(library, folder):
    """Returns the paths of the members of a static library. A thin archive of Meson only names its members, with paths
    from the archive's folder. The members of any other archive are extracted into `folder`."""
    names = subprocess.run(["ar", "t", library], check=True, text=True, capture_output=True,
                           cwd=library.parent).stdout.split()
    if library.read_bytes().startswith(b"!<thin>"):
        return [library.parent / name for name in names]
    subprocess.run(["ar", "x", library], check=True, cwd=folder)
    return [Path(folder) / name for name in names]


def isa_of(path):
    """Returns the instruction set or unit that an object belongs to, or None. The folder of each set or unit in
    kernels/, except scalar, has a table.c. Objects of scalar get None, as code outside these folders does."""
    names = [table.parent.name for table in (ROOT / "kernels").glob("*/table.c")]
    return next((name for name in sorted(names, key=len, reverse=True) if path.name.startswith(name + "_")), None)


def offences(path):
    isa = isa_of(path)
    forbidden = FORBIDDEN.get(isa) if isa else BEYOND_X86_64
    if forbidden is None:
        return []
    listing = subprocess.run(["objdump", "-d", "--no-show-raw-insn", path], check=True, text=True,
                             capture_output=True).stdout
    return [line.strip() for line in listing.splitlines() if forbidden.search(line)]


def main():
    library = (Path(sys.argv[1]) / "dispatch" / "libattnkit.a").resolve()
    architecture = subprocess.run(["objdump", "-f", library], text=True, capture_output=True).stdout
    if "x86-64" not in architecture:
        print("baseline.py: not x86-64, nothing to check: NEON is in the baseline of aarch64")
        return 0
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        paths = objects_of(library, folder)
        for path in paths:
            lines = offences(path)
            bad += bool(lines)
            for line in lines[:3]:
                print(f"{path.name}: {line}")
    wide = sum(isa_of(path) == "avx512" for path in paths)
    units = {isa_of(path) for path in paths} >= {"avx2_vnni", "avx512_bf16", "avx512_vnni", "avx512_amx"}
    print(f"{len(paths)} objects, {bad} with instructions of another instruction set")
    return 1 if bad or not paths or not wide or not units else 0


if __name__ == "__main__":
    sys.exit(main())
