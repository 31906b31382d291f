"""How do the files of a model get from Python to the C API, where they are given and not found by their path?"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping
from ctypes import POINTER, Structure, c_char_p, c_int, c_ssize_t, c_uint64, c_void_p, py_object, pythonapi, sizeof
from typing import Any, NamedTuple, Protocol, Union

from . import _abi
from ._library import library
from .options import encoded, integer


class _HasDescriptor(Protocol):
    def fileno(self) -> int: ...


class FileRange(NamedTuple):
    """`size` bytes from byte `offset` of an open file, such as a part of a pack file. The file can be closed when the engine is open."""

    #: An open file, or its descriptor.
    file: Union[int, _HasDescriptor]
    offset: int
    size: int


#: bytes, bytearray, memoryview, mmap.mmap or another contiguous buffer, or a range of an open file.
ModelFile = Union[bytes, bytearray, memoryview, FileRange, Any]


class _Buffer(Structure):
    """Py_buffer."""

    _fields_ = [
        ("buf", c_void_p),
        ("obj", py_object),
        ("len", c_ssize_t),
        ("itemsize", c_ssize_t),
        ("readonly", c_int),
        ("ndim", c_int),
        ("format", c_char_p),
        ("shape", POINTER(c_ssize_t)),
        ("strides", POINTER(c_ssize_t)),
        ("suboffsets", POINTER(c_ssize_t)),
        ("internal", c_void_p),
    ]


_get_buffer = pythonapi.PyObject_GetBuffer
_get_buffer.argtypes, _get_buffer.restype = [py_object, POINTER(_Buffer), c_int], c_int
_release_buffer = pythonapi.PyBuffer_Release
_release_buffer.argtypes, _release_buffer.restype = [POINTER(_Buffer)], None


class Files:
    """An array of nvllm_model_file. Buffers in it are held until `release`: nobody can resize, unmap or collect them."""

    def __init__(self, files: Mapping[str, ModelFile]) -> None:
        self._buffers: list[_Buffer] = []
        self._names: list[bytes] = []
        self.array = (_abi.nvllm_model_file * len(files))()
        try:
            for native, (name, file) in zip(self.array, files.items()):
                library.nvllm_model_file_init(ctypes.byref(native), sizeof(native))
                self._names.append(encoded(name, "the name of a file"))
                native.name = self._names[-1]
                if isinstance(file, FileRange):
                    native.kind = _abi.FileKind.RANGE
                    native.descriptor = _descriptor(file)
                    native.offset = integer(file.offset, c_uint64, "the offset of a range")
                    native.size = integer(file.size, c_uint64, "the size of a range")
                else:
                    buffer = _Buffer()
                    _get_buffer(file, ctypes.byref(buffer), 0)
                    self._buffers.append(buffer)
                    native.data, native.size = buffer.buf, buffer.len
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Lets go of the buffers."""
        while self._buffers:
            _release_buffer(ctypes.byref(self._buffers.pop()))


def _descriptor(file: FileRange) -> int:
    descriptor = file.file if isinstance(file.file, int) else file.file.fileno()
    descriptor = integer(descriptor, c_int, "the descriptor of a range")
    if sys.platform == "win32":
        import msvcrt

        return msvcrt.get_osfhandle(descriptor)
    return descriptor
