"""How does one call complete many prompts? By nvllm_generate, or by a request for each where texts and tokens are mixed."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from ctypes import POINTER, byref, c_char_p, c_void_p, sizeof
from typing import TYPE_CHECKING, Any, Optional, Union

from . import _abi
from ._abi import Status
from ._library import library
from .callbacks import Reports
from .errors import Error, call
from .options import completions
from .output import Output
from .progress import Meter
from .prompts import Prompt, arrays, tokens
from .result import Result, failed, joined
from .structure import becomes

if TYPE_CHECKING:
    from .engine import Engine

#: The options of every prompt, or one entry that holds for all.
Each = Sequence[Mapping[str, Any]]

#: One text or several.
Texts = Union[str, Sequence[str]]


def options_of(each: Optional[Each], options: Mapping[str, Any], count: int) -> Each:
    """The options of a call: one entry, or one per prompt."""
    if each is None:
        return [options]
    if options:
        raise TypeError("options are given for all prompts and for each of them")
    if len(each) != count:
        raise ValueError(f"there are {count} prompts, and options for {len(each)}")
    return each


def of_prompt(given: Each, place: int) -> Mapping[str, Any]:
    """The options of one prompt."""
    return given[place] if len(given) > 1 else given[0]


def grouped(prompts: Sequence[Prompt], groups: Sequence[list[Output]], given: Each) -> list[Result]:
    """A result per prompt, of its completions."""
    return [Result._of(prompt, group, becomes(of_prompt(given, at))) for at, (prompt, group) in enumerate(zip(prompts, groups))]


def raise_if_all_refused(groups: Sequence[list[Output]], given: Each) -> None:
    """Options that hold for all prompts and are invalid fail the call, as those of nvllm_generate do."""
    errors = [group[0].error for group in groups]
    if len(given) == 1 and errors and errors[0] is not None:
        if all(error is not None and error.status == Status.ERR_INVALID_ARGUMENT for error in errors):
            raise errors[0]


def raise_if_alone(results: Sequence[Result], is_one: bool) -> None:
    """A prompt that was not given in a list, and that cannot run, fails its call."""
    if is_one and results[0].error is not None and not results[0].token_ids:
        raise results[0].error


def generate(engine: Engine, prompts: Sequence[Prompt], name: str, meter: Meter, given: Each) -> list[Result]:
    """Generates for all prompts. `name` is that of the argument that they came by."""
    before = 0 if meter.is_silent else engine.stats()["generated_tokens"]

    def report(finished: int, total: int) -> None:
        if not meter.is_silent:
            meter.report(finished, total, engine.stats()["generated_tokens"] - before)
        if engine._handle.closed:
            raise Error(Status.ERR_CANCELLED, "the engine was closed during the call")

    try:
        kinds = {isinstance(prompt, str) for prompt in prompts}
        groups = _mixed(engine, prompts, name, report, given) if len(kinds) > 1 else _alike(engine, prompts, name, report, given)
    finally:
        meter.close()
    return grouped(prompts, groups, given)


def _alike(engine: Engine, prompts: Sequence[Prompt], name: str, report: Any, given: Each) -> list[list[Output]]:
    function, texts, lengths = arrays(prompts, name)
    natives = [engine._options(one, prompts if len(given) == 1 else prompts[at : at + 1]) for at, one in enumerate(given)]
    pointers: Any = (POINTER(_abi.nvllm_request_options) * len(natives))()
    for at, native in enumerate(natives):
        pointers[at] = ctypes.pointer(native.struct)
    reports = Reports(lambda native: report(native.contents.finished, native.contents.total), POINTER(_abi.nvllm_progress), _abi.nvllm_generate_progress_fn)
    made = c_void_p()
    try:
        try:
            arguments = (texts, lengths, len(prompts), pointers, len(natives), reports.function, None, byref(made))
            engine._call_alone(function, *arguments)
        finally:
            reports.raise_again()
        groups: list[list[Output]] = []
        for index in range(library.nvllm_result_count(made)):
            output = _result(made, index)
            if output.index == 0:
                groups.append([])
            groups[-1].append(output)
        return groups
    finally:
        library.nvllm_result_free(made)


def score(engine: Engine, texts: Texts, seconds: Optional[Texts], meter: Meter, options: Mapping[str, Any]) -> list[list[float]]:
    """The scores of texts, or of pairs of texts: one text is paired with each of `seconds`."""
    others = [seconds] if isinstance(seconds, str) else None if seconds is None else list(seconds)
    given = [texts] * (1 if others is None else len(others)) if isinstance(texts, str) else list(texts)
    if others is not None and len(others) != len(given):
        raise ValueError(f"there are {len(given)} texts, and {len(others)} seconds")
    first, second = _terminated(given), None if others is None else _terminated(others)
    reports = Reports(
        lambda native: meter.report(native.contents.finished, native.contents.total, 0),
        POINTER(_abi.nvllm_progress),
        _abi.nvllm_generate_progress_fn,
    )
    made = c_void_p()
    native = engine._options(options, given) if options else None
    pointers: Any = None if native is None else (POINTER(_abi.nvllm_request_options) * 1)(ctypes.pointer(native.struct))
    count = 0 if native is None else 1
    try:
        try:
            engine._call_alone(library.nvllm_score, first, second, len(given), pointers, count, reports.function, None, byref(made))
        finally:
            reports.raise_again()
            meter.close()
        outputs = [_result(made, index) for index in range(library.nvllm_result_count(made))]
    finally:
        library.nvllm_result_free(made)
    for place, output in enumerate(outputs):
        if output.error is not None:
            raise Error(output.error.status, f"texts[{place}]: {output.error}", output.error.native_code)
    return [output.scores for output in outputs]


def _terminated(texts: Sequence[str]) -> Any:
    """Texts as C has them."""
    if any("\0" in text for text in texts):
        raise ValueError("a text that is scored has no NUL")
    return (c_char_p * len(texts))(*[text.encode() for text in texts])


def _result(made: c_void_p, index: int) -> Output:
    native = _abi.nvllm_output(struct_size=sizeof(_abi.nvllm_output))
    call(library.nvllm_result_get_with_error, made, index, byref(native))
    return Output._copied(native)


class _Running:
    """A request of one of the prompts."""

    def __init__(self, place: int, request: int, own: deque[Output], left: int) -> None:
        self.place, self.request, self.own, self.left = place, request, own, left
        self.outputs: list[Output] = []

    def take(self) -> int:
        """Takes what has come. Returns how many completions have ended with that."""
        before = self.left
        while self.own:
            output = self.own.popleft()
            self.left -= output.finished
            self.outputs.append(output)
        return before - self.left


def _mixed(engine: Engine, prompts: Sequence[Prompt], name: str, report: Any, given: Each) -> list[list[Output]]:
    """Through streams, because nvllm_generate takes prompts of one kind."""
    total = sum(completions(of_prompt(given, at)) for at in range(len(prompts)))
    waiting = deque(range(len(prompts)))
    native = [prompt if isinstance(prompt, str) else list(tokens(prompt, f"{name}[{at}]")) for at, prompt in enumerate(prompts)]
    groups: list[list[Output]] = [[] for _ in prompts]
    running: list[_Running] = []
    finished = 0
    try:
        while waiting or running:
            for one in _added(engine, native, given, waiting, groups):
                running.append(one)
            if not running and not waiting:
                break
            engine._advance(None if not running else running[0].own)
            for one in list(running):
                finished += one.take()
                if one.left == 0:
                    running.remove(one)
                    engine._inbox.leave(one.request, 0)
                    groups[one.place] = joined(one.outputs)
            report(finished, total)
    finally:
        for one in running:
            if engine._inbox.leave(one.request, one.left):
                engine._cancel_quietly(one.request)
    raise_if_all_refused(groups, given)
    return groups


def _added(engine: Engine, prompts: Sequence[Prompt], given: Each, waiting: deque[int], groups: list[list[Output]]) -> Iterator[_Running]:
    """Adds requests until the queue is full."""
    while waiting:
        place = waiting[0]
        options = dict(of_prompt(given, place))
        try:
            request, own = engine._inbox.open(lambda: engine.add_request(prompts[place], **options))
        except Error as error:
            if error.status == Status.ERR_QUEUE_FULL:
                return
            groups[place] = [failed(error)]
        else:
            yield _Running(place, request, own, completions(options))
        waiting.popleft()
