"""What may a prompt be, and how does it get to the C API? Text, which the model's tokenizer reads, or tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from ctypes import POINTER, c_char_p, c_size_t, c_uint32, cast
from operator import index
from typing import Any, Optional, Union

from ._library import library

#: Text, which the model's tokenizer reads, or tokens.
Prompt = Union[str, Sequence[int]]
#: One of a conversation: a dict with "role" and "content", and what else the model's template reads.
Message = Mapping[str, Any]

_WANTED = "a str or a sequence of token ids is wanted"


def tokens(given: Iterable[int], name: str) -> Any:
    """An array of tokens for the C API."""
    _check(given, name)
    values = []
    for place, value in enumerate(given):
        number = _integer(value)
        if number is None:
            raise TypeError(f"{name}[{place}] is {shown(value)}: {_WANTED}, and these are not all integers")
        if not 0 <= number < 1 << 32:
            raise ValueError(f"{name}[{place}] is {number}, which is no token")
        values.append(number)
    return (c_uint32 * len(values))(*values)


def _check(prompt: Any, name: str) -> None:
    # A sequence of integers, which would be read as the ids of other tokens.
    if isinstance(prompt, (bytes, bytearray, memoryview)):
        raise TypeError(f"{name} is {type(prompt).__name__}, where {_WANTED}: decode it")
    if isinstance(prompt, Mapping) or not isinstance(prompt, Iterable):
        raise TypeError(f"{name} is {shown(prompt)}: {_WANTED}")


def _integer(value: Any) -> Optional[int]:
    """An integer, also one of numpy."""
    try:
        return index(value)
    except TypeError:
        return None


def shown(value: Any) -> str:
    """A value in a message."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def several(prompts: Any, name: str) -> tuple[list[Any], bool]:
    """A list of prompts, and whether it was given as one prompt."""
    if isinstance(prompts, str):
        return [prompts], True
    _check(prompts, name)
    given = list(prompts)
    if given and _integer(given[0]) is not None:
        return [given], True
    for place, prompt in enumerate(given):
        _check(prompt, f"{name}[{place}]")
    return given, False


def arrays(prompts: Sequence[Prompt], name: str) -> tuple[Any, Any, Any]:
    """The function that takes these prompts, which are all texts or all tokens, the prompts, and their lengths."""
    if all(isinstance(prompt, str) for prompt in prompts):
        texts = [prompt.encode() for prompt in prompts]  # type: ignore[union-attr]
        return library.nvllm_generate, (c_char_p * len(texts))(*texts), (c_size_t * len(texts))(*map(len, texts))
    made = [tokens(prompt, f"{name}[{place}]") for place, prompt in enumerate(prompts)]  # type: ignore[arg-type]
    pointers = (POINTER(c_uint32) * len(made))(*[cast(array, POINTER(c_uint32)) for array in made])
    pointers.kept = made  # type: ignore[attr-defined]
    return library.nvllm_generate_tokens, pointers, (c_size_t * len(made))(*map(len, made))


def conversation(messages: Any) -> list[Message]:
    """Messages, which may be given as one text of the user."""
    if isinstance(messages, str):
        return [{"role": "user", "content": messages}]
    wanted = 'a message is a dict such as {"role": "user", "content": "Hello"}'
    if isinstance(messages, (Mapping, bytes)) or not isinstance(messages, Iterable):
        raise TypeError(f"messages is {shown(messages)}, but must be a str or a list of messages: {wanted}")
    given = list(messages)
    for place, message in enumerate(given):
        if not isinstance(message, Mapping):
            raise TypeError(f"messages[{place}] is {shown(message)}: {wanted}")
        if "role" not in message:
            raise ValueError(f"messages[{place}] has no role: {wanted}")
        if "content" not in message and "tool_calls" not in message:
            raise ValueError(f"messages[{place}] has no content: {wanted}")
    return given
