"""How do the options of a Python caller become those of the C API?"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from ctypes import POINTER, c_char_p, c_float, c_uint32, cast, sizeof
from enum import IntEnum
from typing import Any, Optional, Union

from . import _abi

#: Options whose numbers have names: "cpu" is Device.CPU.
_ENUMS: dict[str, type[IntEnum]] = {
    "device": _abi.Device,
    "dtype": _abi.DType,
    "kv_cache_dtype": _abi.KvCacheDtype,
    "load_mode": _abi.LoadMode,
    "pooling": _abi.Pooling,
    "early_stopping": _abi.EarlyStopping,
    "quantization": _abi.Quantization,
    "structure_kind": _abi.StructureKind,
}
#: Arrays: the field of their length, and the type of their numbers.
_ARRAYS = {
    "stop_tokens": ("num_stop_tokens", c_uint32),
    "device_indices": ("num_device_indices", ctypes.c_int32),
}


class RequestOptions(_abi.RequestOptions, total=False):
    """Options of a request."""

    #: Added to the logits of tokens, after the penalties: finite, or minus infinity to exclude a token.
    logit_bias: Mapping[int, float]


class Native:
    """A struct of options, and what its pointers lead to."""

    def __init__(self, struct: ctypes.Structure):
        self.struct = struct
        self._kept: list[Any] = []

    def assign(self, options: Mapping[str, Any], kind: str) -> None:
        """Sets fields by their names.

        Raises TypeError for a name that there is not and ValueError for a value that its field cannot hold.
        """
        fields = dict(self.struct._fields_)
        for name, value in options.items():
            if name == "logit_bias":
                tokens = [integer(token, c_uint32, "a token of logit_bias") for token in value]
                self._array("bias_tokens", c_uint32, tokens)
                self.struct.num_bias = self._array("bias_values", c_float, list(value.values()))
            elif name == "stop":
                texts = [value] if isinstance(value, str) else value
                self.struct.num_stop = self._array("stop", c_char_p, [encoded(text, name) for text in texts])
            elif name in _ARRAYS:
                count, of = _ARRAYS[name]
                setattr(self.struct, count, self._array(name, of, [integer(number, of, name) for number in value]))
            elif name not in fields or not is_option(name):
                raise TypeError(f"{name!r} is not an option of {kind}")
            else:
                setattr(self.struct, name, self._value(fields[name], name, value))

    def _value(self, field: Any, name: str, value: Any) -> Any:
        if name in _ENUMS:
            value = member(_ENUMS[name], value, name)
        if field is c_char_p:
            value = None if value is None else encoded(value, name)
            self._kept.append(value)
            return value
        return float(value) if field is c_float else integer(value, field, name)

    def _array(self, name: str, of: Any, values: list[Any]) -> int:
        array = (of * len(values))(*values)
        self._kept.append((array, values))
        setattr(self.struct, name, cast(array, POINTER(of)) if values else None)
        return len(values)


def member(enum: type[IntEnum], value: Any, name: str) -> int:
    """The number of a member of `enum`, given as one, as its name in any case, or as a number."""
    if not isinstance(value, str):
        return value
    try:
        return enum[value.upper()]
    except KeyError:
        names = ", ".join(one.name.lower() for one in enum)
        raise ValueError(f"{name} is {value!r}, but must be one of {names}") from None


def is_option(field: str) -> bool:
    """Whether a field is an option by its own name: not those of arrays, which have one together."""
    counts = {count for count, _ in _ARRAYS.values()}
    return field != "struct_size" and field not in counts and not field.startswith(("num_stop", "num_bias", "bias_"))


def integer(value: Any, of: Any, name: str) -> int:
    """`value`, if a field of type `of` holds it: ctypes would drop the upper bits."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None or number != value:
        error = ValueError if isinstance(value, (int, float)) else TypeError
        raise error(f"{name} is {value!r}, but must be an integer")
    if of(number).value != number:
        bits, signed = 8 * sizeof(of), of(-1).value < 0
        low, high = (-1 << bits - 1, (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        raise ValueError(f"{name} is {value!r}, but must be from {low} to {high}")
    return number


def encoded(text: str, name: str) -> bytes:
    """UTF-8 that C reads up to its NUL."""
    if not isinstance(text, str):
        raise TypeError(f"{name} is {text!r}, but must be a str")
    if "\0" in text:
        raise ValueError(f"{name} has a NUL character, and the C API ends texts at one")
    return text.encode()


def engine_config(model_path: Union[str, bytes, os.PathLike, None], options: Mapping[str, Any]) -> Native:
    from ._library import library

    native = Native(_abi.nvllm_engine_config())
    library.nvllm_engine_config_init(native.struct, sizeof(native.struct))
    if "progress_user_data" in options or "progress" in options:
        raise TypeError("progress is a parameter of its own")
    path = None if model_path is None else os.fsdecode(model_path)
    native.assign({**options, "model_path": path}, "an engine")
    return native
