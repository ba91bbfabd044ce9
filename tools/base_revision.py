#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Finds the commit with which a change is to be compared. This is the commit where HEAD left a main branch. The main
branches are origin/HEAD, origin/main and main. The first of these branches that HEAD has left counts. If HEAD has left
none of these branches, the commit before HEAD is found.

    tools/base_revision.py [FOLDER]

FOLDER is a folder in the repository, by default the current folder. The exit status is 77 if the commit cannot be
found, for example because there is no git, FOLDER is in no repository, or the clone has no history.
"""

import subprocess
import sys

MAIN_BRANCHES = ("origin/HEAD", "origin/main", "main")
NOTHING_TO_SEE = 77


def git(folder, *words):
    """Returns the output of git without white space around it, or "" if git fails or is missing."""
    try:
        done = subprocess.run(["git", "-C", str(folder), *words], text=True, capture_output=True)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def base_revision(folder):
    """Returns the full hash of the commit with which HEAD is to be compared, or "" if it cannot be found."""
    head = git(folder, "rev-parse", "--verify", "HEAD")
    for branch in MAIN_BRANCHES:
        fork = git(folder, "merge-base", "HEAD", branch)
        if fork and fork != head:
            return fork
    return git(folder, "rev-parse", "--verify", "HEAD~1")


def main():
    if len(sys.argv) > 2 or sys.argv[1:2] in (["-h"], ["--help"]):
        sys.exit(__doc__)
    revision = base_revision(sys.argv[1] if len(sys.argv) == 2 else ".")
    if not revision:
        print("base_revision.py: no git, or no commit before this commit", file=sys.stderr)
        return NOTHING_TO_SEE
    print(revision)
    return 0


if __name__ == "__main__":
    sys.exit(main())
