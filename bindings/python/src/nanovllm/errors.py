"""Why did a call fail?"""

from __future__ import annotations

from ctypes import byref
from typing import Any, Union

from . import _abi
from ._abi import Status


class Error(Exception):
    """A call failed. The message says what was wanted, what was found, and which option changes it."""

    def __init__(self, status: int, message: str, native_code: int = 0):
        super().__init__(message)
        #: A member of `Status`, or a number that this package does not know.
        self.status: Union[Status, int] = Status(status) if status in Status._value2member_map_ else status
        #: errno or the error code of the device, or 0.
        self.native_code = native_code

    def __reduce__(self) -> Any:
        return Error, (int(self.status), str(self), self.native_code)


def call(function: Any, *arguments: Any) -> int:
    """Calls a function whose last parameter is an nvllm_error, and returns its status if that is no error."""
    failed = _abi.nvllm_error()
    status: int = function(*arguments, byref(failed))
    if status < 0:
        raise Error(status, failed.message.decode("utf-8", "replace"), failed.native_code)
    return status
