"""Where is the shared library, and does it have the ABI of this package?

It is looked for in the environment variable NANOVLLM_LIBRARY (a path), beside this file, where a wheel has it, and then where the system looks
for libraries.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any

from . import _abi

#: NVLLM_ABI_VERSION of the header that _abi.py was generated from.
_ABI_VERSION = 0
_NAME = "nanovllm.dll" if sys.platform == "win32" else f"libnanovllm.so.{_ABI_VERSION}"


def _open() -> ctypes.CDLL:
    named = os.environ.get("NANOVLLM_LIBRARY")
    beside = Path(__file__).with_name(_NAME)
    try:
        library = ctypes.CDLL(named or (str(beside) if beside.exists() else _NAME))
    except OSError as error:
        raise ImportError(
            f"{_NAME} was not found: {error}. Install the wheel, which has it inside, or set NANOVLLM_LIBRARY to its path."
        ) from error
    for name, result, parameters in _abi.FUNCTIONS:
        try:
            function = getattr(library, name)
        except AttributeError as error:
            raise ImportError(f"{library._name} has no {name}: it is older than this package") from error
        function.restype = result
        function.argtypes = parameters
    found = library.nvllm_abi_version()
    if found != _ABI_VERSION:
        raise ImportError(f"{library._name} has ABI version {found}, and this package needs {_ABI_VERSION}")
    return library


library = _open()


def version() -> str:
    """The version of the loaded library, such as "0.1.0"."""
    return str(library.nvllm_version(), "utf-8")


def abi_version() -> int:
    """The number in the soname of the loaded library."""
    return int(library.nvllm_abi_version())


def build_info() -> dict[str, Any]:
    """What the library was built with, and what it finds on this machine."""
    info: dict[str, Any] = json.loads(library.nvllm_build_info())
    return info
