"""Builds a wheel for one platform, with the shared library inside that scripts/wheel.sh puts into the package.

The tag of the wheel says what that library needs, wherever it was built: the newest version of glibc whose symbols it has, and the processor.
"""

import os
import re
import struct
import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.dist import Distribution

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:
    from wheel.bdist_wheel import bdist_wheel

PACKAGE = Path(__file__).with_name("src") / "nanovllm"
#: The field `machine` of ELF and PE headers.
ELF_MACHINES = {62: "x86_64", 183: "aarch64"}
PE_MACHINES = {0x8664: "win_amd64", 0xAA64: "win_arm64"}
#: The first glibc that pip knows by its version, for a library that needs an older one.
OLDEST_GLIBC = (2, 17)


def platform_of(library):
    """The platform tag of a library of Linux or Windows. Raises ValueError for another file."""
    head = library.read_bytes()[:4096]
    if head[:2] == b"MZ":
        (at,) = struct.unpack_from("<I", head, 0x3C)
        (machine,) = struct.unpack_from("<H", head, at + 4)
        if head[at : at + 4] == b"PE\0\0" and machine in PE_MACHINES:
            return PE_MACHINES[machine]
    elif head[:4] == b"\x7fELF":
        (machine,) = struct.unpack_from("<H", head, 18)
        if machine in ELF_MACHINES:
            major, minor = max(glibc_of(library), OLDEST_GLIBC)
            return f"manylinux_{major}_{minor}_{ELF_MACHINES[machine]}"
    raise ValueError(f"{library} is no library for Linux or Windows, on x86-64 or ARM64")


def glibc_of(library):
    """The newest version of glibc among those of the symbols that a library needs. readelf reads files of any processor."""
    needs = subprocess.run(
        ["readelf", "--version-info", "--wide", library], env={**os.environ, "LC_ALL": "C"}, check=True, capture_output=True, text=True
    ).stdout
    versions = [tuple(map(int, found)) for found in re.findall(r"Name: GLIBC_(\d+)\.(\d+)", needs)]
    if not versions:
        raise ValueError(f"{library} needs no version of glibc: only libraries that use glibc have a tag")
    return max(versions)


class PlatformDistribution(Distribution):
    """A package with a shared library."""

    def has_ext_modules(self):
        return True


class AnyPython(bdist_wheel):
    """The library knows nothing of Python, so that one wheel serves all versions."""

    def get_tag(self):
        libraries = [*PACKAGE.glob("libnanovllm.so*"), *PACKAGE.glob("nanovllm.dll")]
        if len(libraries) > 1:
            raise ValueError(f"there are several libraries: {', '.join(map(str, libraries))}")
        _, _, platform = super().get_tag()
        return "py3", "none", platform_of(libraries[0]) if libraries else platform


setup(distclass=PlatformDistribution, cmdclass={"bdist_wheel": AnyPython})
