# SPDX-License-Identifier: Apache-2.0
"""Tests attnkit on 64-bit RISC-V, a CPU family for which attnkit has only the scalar kernels. The kernels run under
qemu, and their results are compared with a sample of the golden hashes. This test needs cmocka, which is built once
from Debian's source."""

import re
import shutil
import tempfile
from pathlib import Path

from steps import HERE, ROOT, Failed, alone, build, cache_folder, download, need, output_of, version

CMOCKA = "pool/main/c/cmocka/cmocka_1.1.7.orig.tar.xz"
SHA256 = "810570eb0b8d64804331f82b29ff47c790ce9cd6b163e98d47a4807047ecad82"
EMULATOR = ["qemu-riscv64-static", "-L", "/usr/riscv64-linux-gnu"]
EVERY = 19  # of each kind, every 19th case runs; all cases would take half an hour


def cmocka():
    """Returns the folder where cmocka is installed for RISC-V."""
    prefix = cache_folder() / f"cmocka-riscv64-{SHA256[:12]}"
    with alone("cmocka"):
        if not prefix.exists():
            with tempfile.TemporaryDirectory(dir=prefix.parent, prefix="cmocka.") as name:
                folder = Path(name)
                download(CMOCKA, SHA256, folder / "cmocka.tar.xz")
                output_of("tar", "-xf", folder / "cmocka.tar.xz", "-C", folder)
                output_of("cmake", "-S", folder / "cmocka-1.1.7", "-B", folder / "build", "-G", "Ninja",
                          "-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=riscv64",
                          "-DCMAKE_C_COMPILER=riscv64-linux-gnu-gcc", "-DBUILD_SHARED_LIBS=OFF",
                          "-DWITH_EXAMPLES=OFF", "-DCMAKE_INSTALL_LIBDIR=lib", f"-DCMAKE_INSTALL_PREFIX={prefix}")
                output_of("cmake", "--build", folder / "build")
                try:
                    output_of("cmake", "--install", folder / "build")
                except BaseException:
                    shutil.rmtree(prefix, ignore_errors=True)
                    raise
    return prefix


def under_qemu():
    """RISC-V, 64 bits: the scalar kernels under qemu, golden hashes"""
    need(("riscv64-linux-gnu-gcc", "gcc-riscv64-linux-gnu"), ("qemu-riscv64-static", "qemu-user-static"),
         ("cmake", "cmake"))
    folder = build("riscv64", "--cross-file", HERE / "riscv64.ini", "-Dtools=false", "-Dbench=disabled",
                   f"-Dpkg_config_path={cmocka() / 'lib' / 'pkgconfig'}",
                   targets=("tests/golden", "tests/cpu_model_probe", "dispatch/libattnkit.so.0.1.0"))
    output_of(*EMULATOR, folder / "tests" / "cpu_model_probe", "scalar")
    text = output_of(*EMULATOR, folder / "tests" / "golden", ROOT / "tests" / "promises" / "golden.txt", "--isa",
                     "scalar", "--every", EVERY)
    counted = re.search(r"^# scalar: (\d+) cases, 0 differ$", text, re.M)
    if not counted or int(counted[1]) < 400:
        raise Failed(text[-3000:])
    return f"{version(['riscv64-linux-gnu-gcc'])}: built without warnings; under qemu {counted[1]} golden hashes are " \
        "right"
