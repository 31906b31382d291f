"""Builds the source tree that this file is part of: conan create cmake/conan

The version is that of Cargo.toml. The package has the CMake package of the library itself, which find_package finds.
"""

import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load

required_conan_version = ">=2.0"


class NanovllmConan(ConanFile):
    name = "nanovllm"
    description = "An embeddable LLM inference engine"
    license = "MIT"
    package_type = "shared-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"cuda": [True, False]}
    default_options = {"cuda": False}

    def _tree(self):
        return os.path.join(self.recipe_folder, "..", "..")

    def set_version(self):
        self.version = re.search(r'^version = "(.*)"', load(self, os.path.join(self._tree(), "Cargo.toml")), re.M).group(1)

    def export_sources(self):
        # Cargo requires the main files of tests and benchmarks, which Cargo.toml names, also where it does not build them.
        for pattern in [
            "Cargo.*", "CMakeLists.txt", "LICENSE", "src/*", "include/*", "kernels/*", "bindings/cpp/*", "cmake/*",
            "tests/*.rs", "tests/capi/symbols.txt", "benches/*.rs",
        ]:
            copy(self, pattern, self._tree(), self.export_sources_folder, excludes=["target/*", "build/*", "cmake/conan/*", "cmake/vcpkg/*"])

    def validate(self):
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration("Conan builds nanovllm for Linux. For Windows, make windows makes a CMake package")
        # Those of the vcpkg port. Cargo would build for its own machine, and the package would claim to be for another.
        if self.settings.arch not in ["x86_64", "armv8"]:
            raise ConanInvalidConfiguration(f"nanovllm is built for x86_64 and armv8, not for {self.settings.arch}")

    def package_id(self):
        # Cargo builds for release, and the interface is in C.
        del self.info.settings.compiler
        del self.info.settings.build_type

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["NANOVLLM_BUILD_TESTS"] = False
        toolchain.cache_variables["NANOVLLM_BUILD_EXAMPLES"] = False
        toolchain.cache_variables["NANOVLLM_BUILD_PROGRAM"] = False
        toolchain.cache_variables["NANOVLLM_CUDA"] = "ON" if self.options.cuda else "OFF"
        toolchain.cache_variables["NANOVLLM_CARGO_TARGET_DIR"] = os.path.join(self.build_folder, "cargo")
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        CMake(self).install()

    def package_info(self):
        # The CMake package of the library describes it, not one that Conan makes up.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("lib", "cmake", "nanovllm")]
        self.cpp_info.libs = ["nanovllm"]
