"""How do the options of a Python caller become those of the C API?"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Mapping
from ctypes import POINTER, c_char_p, c_float, c_uint32, cast, sizeof
from typing import Any, Optional, Union

from . import _abi
from .answer import Tools, tools_text
from .names import Name
from .structure import JsonSchema, spelled_out

#: `max_tokens` of a request that gives none.
DEFAULT_MAX_TOKENS = 256
#: As far as max_model_len and the KV cache allow.
UNLIMITED_TOKENS = 0xFFFFFFFF

#: The folder of a model or a GGUF file.
Path = Union[str, bytes, "os.PathLike[Any]", None]
#: Fields whose numbers have names: "cpu" is Device.CPU.
_ENUMS: dict[str, type[Name]] = {
    "device": _abi.Device,
    "dtype": _abi.DType,
    "kv_cache_dtype": _abi.KvCacheDtype,
    "load_mode": _abi.LoadMode,
    "pooling": _abi.Pooling,
    "early_stopping": _abi.EarlyStopping,
    "quantization": _abi.Quantization,
    "structure_kind": _abi.StructureKind,
    "tool_choice": _abi.ToolChoice,
    "embedding_coding": _abi.Coding,
    "attention_coding": _abi.Coding,
    "feed_forward_coding": _abi.Coding,
    "head_coding": _abi.Coding,
}
#: Arrays: the field of their length, and the type of their numbers.
_ARRAYS = {
    "stop_tokens": ("num_stop_tokens", c_uint32),
    "score_tokens": ("num_score_tokens", c_uint32),
    "device_indices": ("num_device_indices", ctypes.c_int32),
}


class RequestOptions(_abi.RequestOptions, total=False):
    """Options of a request. None is as if the option was not given, but for max_tokens."""

    #: Maximum number of tokens to generate, at least 1. Default `DEFAULT_MAX_TOKENS`, or min_tokens if that is more. None is as many as
    #: max_model_len and the KV cache allow.
    max_tokens: Optional[int]
    #: Added to the logits of tokens, after the penalties: finite, or minus infinity to exclude a token.
    logit_bias: Optional[Mapping[int, float]]
    #: The completion satisfies this JSON schema: a dict, JSON text, or a model class of pydantic 2. `Output.parsed` has the object.
    json_schema: Optional[JsonSchema]
    #: The whole completion matches this regular expression, in the syntax of Rust.
    regex: Optional[str]
    #: The completion follows this context-free grammar, in llguidance's dialect of Lark. Its first rule is named start.
    grammar: Optional[str]
    #: Tools that the model may call, as in the OpenAI API: a list of dicts, or its JSON.
    tools: Optional[Tools]  # type: ignore[misc] # text in C


class Native:
    """A struct of options, and what its pointers lead to."""

    def __init__(self, struct: ctypes.Structure):
        self.struct = struct
        self._kept: list[Any] = []

    def assign(self, options: Mapping[str, Any], kind: str) -> None:
        """Sets fields by their names.

        Raises TypeError for a name that there is not and ValueError for a value that its field cannot hold.
        """
        types = {field[0]: field[1] for field in self.struct._fields_}
        for name, value in options.items():
            if name == "tools" and value is not None:
                value = tools_text(value)
            if name == "logit_bias":
                self._bias(value)
            elif name == "stop":
                texts = [value] if isinstance(value, str) else items(value, name, "a str or a list of them")
                self.struct.num_stop = self._array("stop", c_char_p, [encoded(text, name) for text in texts])
            elif name == "dry_sequence_breakers":
                if value is not None:
                    self._breakers([encoded(text, name) for text in items(value, name, "a list of str")])
            elif name in _ARRAYS:
                count, of = _ARRAYS[name]
                numbers = items(value, name, "a list of integers")
                setattr(self.struct, count, self._array(name, of, [integer(number, of, name) for number in numbers]))
            elif name not in types or not is_option(name):
                raise TypeError(f"{name!r} is not an option of {kind}")
            elif value is not None:
                setattr(self.struct, name, self._value(types[name], name, value))

    def _bias(self, bias: Optional[Mapping[int, float]]) -> None:
        if not isinstance(bias, (Mapping, type(None))):
            raise TypeError(f"logit_bias is {bias!r}, but must be a dict from tokens to numbers")
        bias = bias or {}
        tokens = [integer(token, c_uint32, "a token of logit_bias") for token in bias]
        self._array("bias_tokens", c_uint32, tokens)
        values = [real(value, f"logit_bias[{token}]") for token, value in bias.items()]
        self.struct.num_bias = self._array("bias_values", c_float, values)

    def _breakers(self, breakers: list[bytes]) -> None:
        # An empty list is not NULL, which would be the default.
        array = (c_char_p * (len(breakers) + 1))(*breakers)
        self._kept.append((array, breakers))
        self.struct.dry_sequence_breakers = cast(array, POINTER(c_char_p))
        self.struct.num_dry_sequence_breakers = len(breakers)

    def _value(self, field: Any, name: str, value: Any) -> Any:
        if name in _ENUMS:
            value = member(_ENUMS[name], value, name)
        if field is c_char_p:
            value = encoded(value, name)
            self._kept.append(value)
            return value
        return real(value, name) if field is c_float else integer(value, field, name)

    def _array(self, name: str, of: Any, values: list[Any]) -> int:
        array = (of * len(values))(*values)
        self._kept.append((array, values))
        setattr(self.struct, name, cast(array, POINTER(of)) if values else None)
        return len(values)


def member(enum: type[Name], value: Any, name: str) -> int:
    """The number of a member of `enum`, given as one, as its name in any case, or as a number."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    try:
        return enum.of(value).number
    except ValueError:
        names = ", ".join(one.value for one in enum)
        raise ValueError(f"{name} is {value!r}, but must be one of {names}") from None


def items(values: Any, name: str, wanted: str) -> list[Any]:
    """The items of a list that an option is."""
    if values is None:
        return []
    if not isinstance(values, Iterable) or isinstance(values, (str, bytes, Mapping)):
        raise TypeError(f"{name} is {values!r}, but must be {wanted}")
    return list(values)


def real(value: Any, name: str) -> float:
    """A number, also one of numpy."""
    if isinstance(value, (str, bytes)) or not (hasattr(value, "__float__") or hasattr(value, "__index__")):
        raise TypeError(f"{name} is {value!r}, but must be a number")
    return float(value)


def is_option(field: str) -> bool:
    """Whether a field is an option by its own name: not those of arrays, which have one together."""
    counts = {count for count, _ in _ARRAYS.values()}
    return field != "struct_size" and field not in counts and not field.startswith(("num_stop", "num_bias", "num_dry", "bias_", "reserved"))


def integer(value: Any, of: Any, name: str) -> int:
    """`value`, if a field of type `of` holds it: ctypes would drop the upper bits."""
    number: Optional[int]
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


def enum_name(field: str, number: float) -> Union[Name, float]:
    """What a number that the library gives is called, if it has a name."""
    enum = _ENUMS.get(field)
    try:
        return number if enum is None else enum.of(number)
    except ValueError:
        # Of a newer library.
        return number


def request_options(native: Native, options: Mapping[str, Any], fits: bool) -> Native:
    """Sets options of a request in a struct of defaults. `fits` says whether the cache holds the default number of tokens."""
    given = spelled_out(options)
    if "max_tokens" not in given:
        least = given.get("min_tokens") or 0
        least = integer(least, c_uint32, "min_tokens")
        given["max_tokens"] = max(DEFAULT_MAX_TOKENS, least) if fits else UNLIMITED_TOKENS
    elif given["max_tokens"] is None:
        given["max_tokens"] = UNLIMITED_TOKENS
    native.assign(given, "a request")
    return native


def completions(options: Mapping[str, Any]) -> int:
    """How many completions a request has."""
    return integer(options.get("n") or 1, c_uint32, "n")


def engine_config(model_path: Path, options: Mapping[str, Any]) -> Native:
    from ._library import library

    native = Native(_abi.nvllm_engine_config())
    library.nvllm_engine_config_init(native.struct, sizeof(native.struct))
    if "progress_user_data" in options or "progress" in options:
        raise TypeError("progress is a parameter of its own")
    if not isinstance(model_path, (str, bytes, os.PathLike, type(None))):
        raise TypeError(f"model_path is {model_path!r}, but must be the path of a model folder or of a GGUF file")
    path = None if model_path is None else os.fsdecode(model_path)
    native.assign({**options, "model_path": path}, "an engine")
    return native
