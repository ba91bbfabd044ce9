# SPDX-License-Identifier: Apache-2.0
"""The build backend by which pip builds the package: meson-python, with one change. nanobind needs functions that the
stable ABI has only since Python 3.12. A Python without the global lock has no stable ABI. So an older Python, or a
Python without this lock, builds a wheel for its own version alone."""

import sys
import sysconfig

import mesonpy
from mesonpy import (build_editable, build_sdist, get_requires_for_build_editable,  # noqa: F401
                     get_requires_for_build_sdist, get_requires_for_build_wheel)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    settings = dict(config_settings or {})
    if sys.version_info < (3, 12) or sysconfig.get_config_var("Py_GIL_DISABLED"):
        given = settings.get("setup-args", [])
        settings["setup-args"] = [*([given] if isinstance(given, str) else given),
                                  "-Dpython.allow_limited_api=false"]
    return mesonpy.build_wheel(wheel_directory, settings, metadata_directory)
