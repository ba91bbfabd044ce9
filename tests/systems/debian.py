# SPDX-License-Identifier: Apache-2.0
"""Builds the packages of debian/ from a copy of the tree, and checks the packages by lintian, which must report no
error and no warning other than NOT_LOOKED_AT. No source package is built, because the copy has no upstream archive."""

import re
import shutil

from steps import ROOM, ROOT, Failed, need, output_of

# The packages are not in Debian, so there is no bug report that asks for them.
NOT_LOOKED_AT = "initial-upload-closes-no-bugs"
PACKAGES = {"attnkit", "libattnkit0", "libattnkit-dev"}


def packages():
    """The packages of debian/: built; lintian reports no error and no warning"""
    need(("dpkg-buildpackage", "dpkg-dev"), ("dh", "debhelper"), ("lintian", "lintian"))
    folder = ROOM / "debian"
    shutil.rmtree(folder, ignore_errors=True)
    tree = folder / "attnkit-0.1.0"
    tree.mkdir(parents=True)
    files = output_of("git", "-C", ROOT, "ls-files", "-z").split("\0")
    for name in filter(None, files):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tree / name, follow_symlinks=False)
    output_of("dpkg-buildpackage", "--build=binary", "--unsigned-changes", "--no-check-builddeps", cwd=tree)
    made = {path.name.split("_")[0] for path in folder.glob("*.deb")}
    if not PACKAGES <= made:
        raise Failed(f"built {sorted(made)}")
    (changes,) = folder.glob("*.changes")
    said = output_of("lintian", "--allow-root", "--fail-on", "error,warning", "--display-info",
                     "--suppress-tags", NOT_LOOKED_AT, changes)
    tags = sorted(set(re.findall(r"^I: \S+: (\S+)", said, re.M)))
    version = output_of("lintian", "--version").split()[-1]
    return f"{', '.join(sorted(made))}: lintian {version} has no error and no warning, and hints {tags}"
