# SPDX-License-Identifier: Apache-2.0
"""Corrections of wrong results and missing CPUID bits of Bochs 3.0. bochs.py applies them to the source before it
builds Bochs. A correction names a file, a place in the file by two regular expressions, the words to replace there,
their replacement, and how many times the words occur. If the count differs, the build ends, so that no correction is
applied only in part."""

import re
from typing import NamedTuple

SKYLAKE = "cpu/cpudb/intel/corei7_skylake-x.cc"
LEAF_7 = r"::get_std_cpuid_leaf_7\("


class Correction(NamedTuple):
    file: str
    start: str  # the place begins after the first match of this regular expression
    end: str  # the place ends before the next match of this regular expression
    old: str
    new: str
    times: int


# A comment in CORRECTIONS says what holds after the corrections below it.
CORRECTIONS = (
    # tdpbssd takes signed bytes from both tiles, tdpbsud from the first, tdpbusd from the second.
    Correction("cpu/avx/amx.cc", r"DPBDSS\(", "return", "Bit8u", "Bit8s", 10),
    Correction("cpu/avx/amx.cc", r"DPBDSU\(", ";", "Bit8u", "Bit8s", 5),
    Correction("cpu/avx/amx.cc", r"DPBDUS\([^;]*;", ";", "Bit8u", "Bit8s", 5),
    # AMX works although XCR0 does not enable AMX. Linux enables AMX only on a CPU with XFD, which Bochs lacks.
    Correction("cpu/proc_ctrl.cc", r"#if BX_SUPPORT_AMX\s+if", "clear_amx_ok",
               "BX_XCR0_XTILECFG_MASK | BX_XCR0_XTILEDATA_MASK", "0", 1),
    # Programs read in XCR0 that AMX is enabled. The kernel reads its own XCR0.
    Correction("cpu/xsave.cc", r"::XGETBV\(", r"::XSETBV\(", "RAX = BX_CPU_THIS_PTR xcr0.get32()",
               "RAX = BX_CPU_THIS_PTR xcr0.get32() | "
               "(CPL == 3 ? BX_XCR0_XTILECFG_MASK | BX_XCR0_XTILEDATA_MASK : 0)", 1),
    # CPUID leaf 7 of the Skylake-X reports the features that are added to the model.
    Correction(SKYLAKE, LEAF_7, "x00000008", "eax = 0; /*", "eax = 1; /*", 1),
    Correction(SKYLAKE, LEAF_7, "default:", "ecx = 0", "ecx = get_std_cpuid_leaf_7_ecx()", 1),
    Correction(SKYLAKE, LEAF_7, "default:", "edx = 0", "edx = get_std_cpuid_leaf_7_edx()", 1),
    Correction(SKYLAKE, rf"(?s:{LEAF_7}.*?default:)", "ebx", "= 0",
               "= subfunction == 1 ? get_std_cpuid_leaf_7_subleaf_1_eax() : 0", 1),
    # The upper half of the result of vcvtne2ps2bf16 has the elements of the first source.
    Correction("cpu/avx/avx512_bf16.cc", r"::VCVTNE2PS2BF16_MASK_VphHpsWpsR\(", "BX_NEXT_INSTR", "op1.vmm32u(n)",
               "op1.vmm32u(n - DWORD_ELEMENTS(len))", 1),
    # A difference of binary32 numbers with the same exponent is flushed to 0 only if its magnitude is below 2^-126.
    Correction("cpu/softfloat3e/s_subMagsF32.c", "expZ = 0;", "softfloat_flushUnderflowToZero",
               "&& sigDiff", "&& ((sigDiff << shiftDist) & 0x00800000) == 0", 1),
)


def correct(text, correction):
    """Returns the corrected text of a file."""
    start = re.search(correction.start, text)
    end = start and re.compile(correction.end).search(text, start.end())
    found = text[start.end():end.start()].count(correction.old) if end else 0
    if found != correction.times:
        raise ValueError(f"{correction.file}: '{correction.old}' occurs {found} times where "
                         f"{correction.times} were expected")
    place = text[start.end():end.start()].replace(correction.old, correction.new)
    return text[:start.end()] + place + text[end.start():]


def apply(folder):
    """Corrects the source in `folder`."""
    for correction in CORRECTIONS:
        path = folder / correction.file
        path.write_text(correct(path.read_text(encoding="latin-1"), correction), encoding="latin-1")
