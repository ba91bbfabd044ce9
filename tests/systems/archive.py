# SPDX-License-Identifier: Apache-2.0
"""Tests the source archive of `meson dist`, which a distributor gets. The archive must build without the repository and
without warnings, and must pass some tests that need no repository."""

import shutil

from steps import ROOM, Failed, consumers, meson, output_of

BUILD = ROOM / "archive" / "build"
TESTS = ("golden", "dispatch", "api", "header_c99", "texts", "includes", "sources", "structs", "symbols")


def of_meson():
    """The source archive of meson dist: builds, passes tests"""
    output_of(*meson, "dist", "-C", consumers.BUILD, "--no-tests", "--allow-dirty", "--formats", "xztar")
    archives = list((consumers.BUILD / "meson-dist").glob("*.tar.xz"))
    if len(archives) != 1:
        raise Failed(f"{len(archives)} archives in {consumers.BUILD}/meson-dist")
    folder = BUILD.parent
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    output_of("tar", "-xf", archives[0], "-C", folder, "--strip-components=1")
    if (folder / ".git").exists():
        raise Failed("the archive has a repository in it")
    output_of(*meson, "setup", BUILD, folder, "--buildtype=release", "-Dwerror=true", "-Dsleef=disabled")
    output_of("ninja", "-C", BUILD)
    output_of(*meson, "test", "-C", BUILD, "--no-rebuild", *TESTS)
    return f"{archives[0].name}, {archives[0].stat().st_size // 1000} KB: built without warnings; " \
        f"passed {', '.join(TESTS)}"
