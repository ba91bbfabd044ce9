# SPDX-License-Identifier: Apache-2.0
"""The recipe for Conan 2. In the top folder of the tree, `conan create packaging/conan` makes the package."""

import os

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, rm, rmdir

LIBRARY = ("CMakeLists.txt", "LICENSE", "meson.build", "sources.txt", "cmake/*", "dispatch/*", "include/*", "kernels/*")


class Attnkit(ConanFile):
    """The library alone. The options isas and parts leave out instruction sets and parts of the library."""
    name = "attnkit"
    version = "0.1.0"
    license = "Apache-2.0"
    description = "Attention kernels for CPUs: the same bits everywhere"
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False], "isas": ["ANY"], "parts": ["ANY"]}
    default_options = {"shared": False, "isas": "all", "parts": "append;linear;layer;integers;products"}

    def configure(self):
        self.settings.rm_safe("compiler.cppstd")
        self.settings.rm_safe("compiler.libcxx")

    def export_sources(self):
        tree = os.path.join(self.recipe_folder, "..", "..")
        for pattern in LIBRARY:
            copy(self, pattern, tree, self.export_sources_folder)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.variables["ATTNKIT_ISAS"] = str(self.options.isas)
        toolchain.variables["ATTNKIT_PARTS"] = str(self.options.parts)
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()
        # CMake installs a static and a shared library, of which the package keeps one. Conan describes this library to
        # CMake and pkg-config by files of its own.
        libraries = os.path.join(self.package_folder, "lib")
        rm(self, "libattnkit.a" if self.options.shared else "libattnkit.so*", libraries)
        rmdir(self, os.path.join(libraries, "cmake"))
        rmdir(self, os.path.join(libraries, "pkgconfig"))
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "attnkit")
        self.cpp_info.set_property("cmake_target_name", "attnkit::attnkit")
        self.cpp_info.set_property("pkg_config_name", "attnkit")
        self.cpp_info.libs = ["attnkit"]
        if self.settings.os == "Linux":
            self.cpp_info.system_libs = ["m"]
