"""The engine: a model, its tokenizer, its KV cache and a scheduler, stepped by its caller.

Methods that step (`step`, `poll`, `generate`, `chat`, `embed`, the streams, `fork` and what touches cached prefixes) are for one thread at a time,
and not for callbacks: they raise `Error` with Status.ERR_BUSY otherwise; of two that begin at the same moment, one may wait for the other.
`add_request`, `cancel`, `wait`, `wake`, `close` and those that only ask may be called from any thread meanwhile.
"""

from __future__ import annotations

import ctypes
import json
import math
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ctypes import byref, c_float, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p, sizeof
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Optional, Union

from . import _abi, batch
from ._abi import EngineConfig, Pooling, Status, TokenizeFlags, ToolChoice
from ._library import library
from .answer import AnswerParser, Tools, tools_text
from .callbacks import Reports
from .errors import Error, call
from .files import Files, ModelFile
from .handle import Handle
from .inbox import Inbox
from .options import DEFAULT_MAX_TOKENS, Native, Path, RequestOptions, completions, engine_config, enum_name, integer, is_option, member, request_options
from .output import Output
from .progress import Loading, Meter, Progress
from .prompts import Message, Prompt, conversation, several, tokens as _tokens
from .result import Result
from .structure import is_structured
from .vectors import Vectors, pooled, vectors

if TYPE_CHECKING:
    from typing_extensions import Unpack

#: Seconds after which a wait of the main thread looks whether a signal has come.
_INTERRUPT_SECONDS = 0.1
#: From this time on, a wait has no limit.
_LONGEST_WAIT_SECONDS = 1e9
#: UINT64_MAX: no limit for nvllm_wait.
_NO_LIMIT = (1 << 64) - 1


@dataclass(frozen=True)
class Step:
    """What a call of `Engine.step` has done."""

    running: int
    waiting: int
    #: Forward passes that have begun and not finished.
    in_flight: int
    prefill_tokens: int
    decode_tokens: int
    #: Seconds.
    elapsed: float
    #: Whether process 0 has closed its engine, which this one follows.
    closed: bool = False


class Engine:
    """An open model. Close it, or use it in a `with` statement."""

    def __init__(
        self,
        model_path: Path = None,
        *,
        files: Optional[Mapping[str, ModelFile]] = None,
        progress: Union[bool, Callable[[float], Any], None] = None,
        **config: Unpack[EngineConfig],
    ) -> None:
        """Opens `model_path`. Other options are those of nvllm_engine_config, `EngineConfig`; enumerations may be given by name, such as
        device="cpu".

        `files` gives the files of the model by their names instead, as buffers or as `FileRange`: `model_path` is then the name of a GGUF
        file or of a folder among them, or None for the folder that all of them are in. A buffer must not change until the engine is closed,
        and cannot be resized or unmapped until then; with load_mode="read" it is copied.

        `progress` receives the fraction of the model that is loaded; what it raises ends the opening, and is raised again. True shows a bar.
        """
        if model_path is None and files is None:
            raise TypeError("an engine needs a model_path or files")
        native = engine_config(model_path, config)
        loading = Loading(progress)
        reports = Reports(loading.report, c_float, _abi.nvllm_progress_fn)
        native.struct.progress = reports.function
        given = None if files is None else Files(files)
        handle = Handle(given)
        try:
            try:
                if given is None:
                    call(library.nvllm_engine_new, byref(native.struct), byref(handle.native))
                else:
                    arguments = (given.array, len(given.array), byref(handle.native))
                    call(library.nvllm_engine_new_from, byref(native.struct), *arguments)
            finally:
                loading.close()
                reports.raise_again()
            if native.struct.load_mode == _abi.LoadMode.READ:
                handle.release_files()
            self._inbox = Inbox(self._wake_quietly)
            self._stepping = threading.Lock()
            self._handle = handle
            info = self.model_info()
            #: Tokens of a sequence that the KV cache is sure to hold, or None where it holds all that max_model_len allows.
            capacity = int(info["num_kv_blocks"]) * int(info["kv_block_size"])
            self._capacity = None if capacity >= info["max_model_len"] else capacity
        except BaseException:
            handle.close()
            raise

    def close(self) -> None:
        """Frees the engine and ends its requests. Closing twice does nothing.

        Calls that other threads are inside of, or that a callback runs in, end first: `generate` at its next step. The last one frees the
        engine and releases `files`.
        """
        self._handle.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("an engine cannot be copied or pickled: it lives in this process. Open one of its own in each process")

    def _turn(self) -> threading.Lock:
        """What a call that steps holds while it runs, and while it reads what the library lends until the next such call.

        The lock is looked at and not tried: a `with` statement acquires it, between whose parts no interrupt can come. A thread that looks at
        the same moment as another one waits for it.
        """
        if self._stepping.locked():
            message = "another call that steps is running on this engine: make them from one thread at a time, and not inside a callback"
            raise Error(Status.ERR_BUSY, message)
        return self._stepping

    def _call(self, function: Any, *arguments: Any) -> int:
        """Calls a function that any thread may call at any time."""
        with self._handle.enter() as native:
            return call(function, native, *arguments)

    def _call_alone(self, function: Any, *arguments: Any) -> int:
        """Calls a function that is for one thread at a time."""
        with self._handle.enter() as native, self._turn():
            return call(function, native, *arguments)

    # ---- what there is ----

    def model_info(self) -> dict[str, Any]:
        """Properties of the model and of the engine, by their names in nvllm_model_info. Values of enumerations are strings, such as "cpu"."""
        info = self._struct(library.nvllm_engine_model_info, _abi.nvllm_model_info())
        return {name: enum_name(name, value) for name, value in info.items()}

    def stats(self) -> dict[str, int]:
        """Counters since the engine opened, and gauges of now, by their names in nvllm_stats."""
        return self._struct(library.nvllm_get_stats, _abi.nvllm_stats())

    def metrics_text(self) -> str:
        """The same for Prometheus."""
        return self._text(lambda *buffer: self._call(library.nvllm_metrics_text, *buffer))

    def default_options(self) -> dict[str, Any]:
        """Options that requests have where none are given: those that the model recommends, and `max_tokens` DEFAULT_MAX_TOKENS."""
        native = self._default_options()
        values = {name: getattr(native, name) for name in (field[0] for field in native._fields_) if is_option(name)}
        numbers = {name: enum_name(name, value) for name, value in values.items() if isinstance(value, (int, float))}
        return {**numbers, "max_tokens": DEFAULT_MAX_TOKENS}

    def _default_options(self) -> _abi.nvllm_request_options:
        native = _abi.nvllm_request_options()
        library.nvllm_request_options_init(byref(native), sizeof(native))
        self._call(library.nvllm_default_options, byref(native))
        return native

    def _struct(self, function: Any, struct: Any) -> dict[str, int]:
        struct.struct_size = sizeof(struct)
        self._call(function, byref(struct))
        return {name: getattr(struct, name) for name, _ in struct._fields_ if name != "struct_size"}

    # ---- requests ----

    def add_request(self, prompt: Prompt, **options: Unpack[RequestOptions]) -> int:
        """Queues a prompt and returns the id of its request. Its outputs come from `poll`.

        Options are `RequestOptions`: those of nvllm_request_options, and logit_bias, json_schema, regex and grammar. What is not given is as in
        `default_options`; so a completion has at most 256 tokens, and with `max_tokens=None` as many as max_model_len allows.
        """
        native = self._options(options, [prompt])
        pointer = byref(native.struct)
        request = c_uint64()
        if isinstance(prompt, str):
            text = prompt.encode()
            self._call(library.nvllm_add_request, text, len(text), pointer, byref(request))
        else:
            tokens = _tokens(prompt, "prompt")
            self._call(library.nvllm_add_request_tokens, tokens, len(tokens), pointer, byref(request))
        self._inbox.note(request.value)
        return request.value

    def fork(self, request_id: int, index: int = 0, **options: Unpack[RequestOptions]) -> int:
        """Adds a request whose prompt is the whole current text of a live one, and returns its id."""
        native = self._options(options, None)
        request = c_uint64()
        pointer = byref(native.struct)
        parent, index = integer(request_id, c_uint64, "request_id"), integer(index, c_uint32, "index")
        self._call_alone(library.nvllm_fork, parent, index, pointer, byref(request))
        self._inbox.note(request.value)
        return request.value

    def cancel(self, request_id: int) -> bool:
        """Ends a request; its last output has Finish.CANCELLED. False if it has ended before."""
        return self._found(library.nvllm_cancel_with_error, request_id)

    def release_prefix(self, request_id: int) -> bool:
        """Releases the prompt that a request pinned by pin_prompt. False if there is none."""
        return self._found(library.nvllm_release_prefix_with_error, request_id)

    def _found(self, function: Any, request_id: int) -> bool:
        try:
            self._call(function, integer(request_id, c_uint64, "request_id"))
        except Error as error:
            if error.status != Status.ERR_NOT_FOUND:
                raise
            return False
        return True

    def _options(self, options: Mapping[str, Any], prompts: Optional[Sequence[Prompt]]) -> Native:
        """Options of a request for the longest of `prompts`, or for one of unknown length."""
        fits = self._capacity is None
        if self._capacity is not None and prompts is not None:
            # A text has at most a token per byte, and some that the tokenizer adds.
            longest = max((len(one.encode()) + 8 if isinstance(one, str) else len(one) for one in prompts), default=0)
            fits = longest + max(DEFAULT_MAX_TOKENS, options.get("min_tokens") or 0) <= self._capacity
        return request_options(Native(self._default_options()), options, fits)

    # ---- stepping ----

    def step(self, budget: Optional[float] = None) -> Step:
        """Computes for about `budget` seconds, or one forward pass. Outputs then come from `poll`."""
        result = _abi.nvllm_step_result(struct_size=sizeof(_abi.nvllm_step_result))
        micros = _micros(budget)
        with self._handle.enter() as native, self._turn():
            status = call(library.nvllm_step, native, micros, byref(result))
            if self._inbox.has_left:
                self._deal(native)
        return Step(
            running=result.num_running,
            waiting=result.num_waiting,
            in_flight=result.in_flight,
            prefill_tokens=result.prefill_tokens,
            decode_tokens=result.decode_tokens,
            elapsed=result.elapsed_us / 1e6,
            closed=status == Status.CLOSED,
        )

    def poll(self) -> Optional[Output]:
        """The next output of a request of `add_request` or `fork`, or None."""
        with self._handle.enter() as native:
            if (output := self._inbox.take()) is not None:
                return output
            with self._turn():
                while self._deal_one(native):
                    if (output := self._inbox.take()) is not None:
                        return output
        return None

    def _deal_one(self, native: c_void_p) -> bool:
        output = _abi.nvllm_output(struct_size=sizeof(_abi.nvllm_output))
        with self._inbox.lock:
            if call(library.nvllm_poll_output, native, byref(output)) == Status.NO_OUTPUT:
                return False
            self._inbox.deal(Output._copied(output))
            return True

    def _deal(self, native: c_void_p) -> None:
        while self._deal_one(native):
            pass

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Waits until `step` has work or `poll` has an output, for at most `timeout` seconds, or without a limit. Any thread may.

        Returns whether there is something to do: False if the time is over, or if `wake` was called. Raises `Error` when the engine fails
        meanwhile, and ValueError when it is closed. For a loop that serves requests of other threads: wait, step, and poll all outputs.
        """
        now = time.monotonic()
        deadline = math.inf if timeout is None else now + timeout
        # No signal ends the call, and its handler runs in the main thread when the call has returned.
        at_most = _INTERRUPT_SECONDS if threading.current_thread() is threading.main_thread() else math.inf
        while True:
            until = min(deadline, now + at_most)
            if self._wait_once(until - now):
                return True
            now = time.monotonic()
            if now >= deadline or now < until:
                # The time is over, or the wait was ended before.
                return False

    def _wait_once(self, seconds: float) -> bool:
        micros = math.ceil(max(0.0, seconds) * 1e6) if seconds < _LONGEST_WAIT_SECONDS else _NO_LIMIT
        with self._handle.enter() as native:
            status: int = Status.TIMEOUT
            if not self._inbox.has_unclaimed:
                status = call(library.nvllm_wait, native, micros)
            if self._handle.closed:
                # Another thread may be about to wait: it ends there too, one after the other.
                library.nvllm_wake(native, None)
                raise ValueError("the engine is closed")
        return status != Status.TIMEOUT or self._inbox.has_unclaimed

    def wake(self) -> None:
        """Ends every `wait` that is in progress, and the next one that begins, unless there is something to do. Any thread may."""
        self._call(library.nvllm_wake)

    def _wake_quietly(self) -> None:
        try:
            self.wake()
        except (Error, ValueError):
            # Nobody waits for such an engine.
            pass

    def is_finished(self) -> bool:
        """Whether no request is waiting or running, and no output is waiting to be polled.

        False until outputs are polled, so that a loop of `step` alone never ends; True for an engine that can no longer be used, of which
        `step` raises the error.
        """
        # The lock: an output that is being dealt is neither in the library nor in the inbox.
        with self._handle.enter() as native, self._inbox.lock:
            return self._inbox.is_empty and bool(library.nvllm_is_finished(native))

    def stream(self, prompt: Prompt, **options: Unpack[RequestOptions]) -> Iterator[Output]:
        """Yields the outputs of a prompt, and steps the engine for them. Several streams may be read by turns; leaving one early cancels its
        request.
        """
        left = completions(options)
        request, own = self._inbox.open(lambda: self.add_request(prompt, **options))
        try:
            while left > 0:
                while not own:
                    self._advance(own)
                output = own.popleft()
                left -= output.finished
                yield output
        finally:
            if self._inbox.leave(request, left):
                self._cancel_quietly(request)

    def _advance(self, own: Optional[deque[Output]]) -> None:
        """Steps for a stream that waits, or for a request that waits to be added."""
        with self._handle.enter() as native:
            with self._turn():
                call(library.nvllm_step, native, 0, None)
                self._deal(native)
            with self._inbox.lock:
                # Its outputs were taken past this engine, and it would step forever.
                if own is not None and not own and library.nvllm_is_finished(native):
                    raise Error(Status.ERR_NOT_FOUND, "the request of this stream is gone, and no output of it is left")

    def _cancel_quietly(self, request: int) -> None:
        """Cancels where a stream ends. If that fails, the reason for which the stream ends is the one to be raised."""
        try:
            self.cancel(request)
        except (Error, ValueError):
            pass

    def generate(
        self,
        prompts: Union[Prompt, Sequence[Prompt]],
        *,
        progress: Progress = None,
        each: Optional[Sequence[Union[RequestOptions, Mapping[str, Any]]]] = None,
        **options: Unpack[RequestOptions],
    ) -> list[Result]:
        """Generates for all prompts in one call, and returns a result per prompt, in their order. Prompts are texts, lists of tokens, or both.

        `options` hold for all prompts, or `each` has those of every prompt. A completion has at most 256 tokens if max_tokens is not given, and
        as many as max_model_len allows if it is None. `progress=True` shows a bar; `progress(finished, total)` is called after every step, and
        what it raises ends the call.

        Raises `Error` if options that hold for all prompts are invalid, and if a single prompt, given without a list, cannot run. A prompt of a
        list that cannot run has a completion with finish_reason "error", and the others continue.
        """
        given, is_one = several(prompts, "prompts")
        results = batch.generate(self, given, "prompts", Meter(progress), batch.options_of(each, options, len(given)))
        batch.raise_if_alone(results, is_one)
        return results

    # ---- conversations and embeddings ----

    def chat(  # type: ignore[misc] # tools here come first
        self,
        messages: Union[str, Sequence[Message]],
        *,
        tools: Optional[Sequence[Mapping[str, Any]]] = None,
        template: Optional[Mapping[str, Any]] = None,
        **options: Unpack[RequestOptions],
    ) -> Result:
        """Answers a conversation: messages such as {"role": "user", "content": "Hello"}, or the text of one message of the user.

        The model's chat template makes the prompt of the messages, of `tools`, and of its other variables, which `template` has, such as
        {"enable_thinking": False}. Options are as in `generate`. Raises `Error` if the conversation cannot run.

        With `tools`, calls are held to the schemas of the tools, and the text has the markers of the model's format: `answer` reads it.
        """
        options = self._with_tools(tools, options)
        results = batch.generate(self, [self._chat_prompt(messages, tools, template, options)], "messages", Meter(None), [options])
        batch.raise_if_alone(results, True)
        return results[0]

    def chat_stream(  # type: ignore[misc]
        self,
        messages: Union[str, Sequence[Message]],
        *,
        tools: Optional[Sequence[Mapping[str, Any]]] = None,
        template: Optional[Mapping[str, Any]] = None,
        **options: Unpack[RequestOptions],
    ) -> Iterator[Output]:
        """Yields the answer of `chat` as it comes, as `stream` does."""
        options = self._with_tools(tools, options)
        yield from self.stream(self._chat_prompt(messages, tools, template, options), **options)

    @staticmethod
    def _with_tools(tools: Optional[Sequence[Mapping[str, Any]]], options: Any) -> Any:
        """The options of a conversation with these tools."""
        # A structure leaves no room for calls, and a beam search follows no grammar.
        if tools is None or is_structured(options) or options.get("beam_width"):
            return options
        return {"keep_special_tokens": True, **options, "tools": tools}

    def _chat_prompt(
        self,
        messages: Any,
        tools: Optional[Sequence[Mapping[str, Any]]],
        template: Optional[Mapping[str, Any]],
        options: Optional[Mapping[str, Any]] = None,
    ) -> str:
        variables = dict(template or {})
        choice = (options or {}).get("tool_choice")
        if tools is not None and (choice is None or member(ToolChoice, choice, "tool_choice") != ToolChoice.NONE.number):
            variables["tools"] = tools
        return self.apply_chat_template(conversation(messages), **variables)

    def answer_parser(self, prompt: str = "", tools: Optional[Tools] = None) -> AnswerParser:
        """A parser for one answer of the model: content, reasoning and tool calls, while it is written.

        `prompt` is what the model writes after, because a template may have begun the answer; `tools` are those of the request. Outputs need
        the option keep_special_tokens.
        """
        said, given = prompt.encode(), None if tools is None else tools_text(tools).encode()
        native = c_void_p()
        self._call(library.nvllm_answer_parser_new, said, len(said), given, byref(native))
        return AnswerParser(native)

    def answer(self, text: str, prompt: str = "", tools: Optional[Tools] = None) -> dict[str, Any]:
        """The message that a whole answer is: role, content, and where there are some reasoning_content and tool_calls."""
        with self.answer_parser(prompt, tools) as parser:
            parser.feed(text)
            parser.finish()
            return parser.message

    def embed(
        self,
        texts: Union[Prompt, Sequence[Prompt]],
        *,
        normalize: bool = True,
        pooling: Union[Pooling, str] = Pooling.LAST,
        progress: Progress = None,
    ) -> Vectors:
        """The embeddings of texts: an array of numpy, float32, [n, hidden_size], where numpy is installed, else a list of lists. One text has one
        vector.

        Vectors have the Euclidean length 1, unless `normalize` is False. `pooling` is "last", the state of the last token, "mean", "cls", or "auto":
        what the model's folder says. Raises `Error` if a text cannot run.
        """
        given, is_one = several(texts, "texts")
        results = batch.generate(self, given, "texts", Meter(progress), [pooled(pooling)])
        return vectors(results, normalize, is_one, int(self.model_info()["hidden_size"]))

    def score(
        self, texts: batch.Texts, seconds: Optional[batch.Texts] = None, *, progress: Progress = None, **options: Unpack[RequestOptions]
    ) -> Union[list[float], list[list[float]]]:
        """The scores that a classifier or a reranker gives texts, or pairs of texts with `seconds`: one list per text, with a score for each of
        `labels`. One text with several `seconds` is paired with each. With `score_tokens`, a model that generates gives texts the probabilities of these
        tokens after them. Raises `Error` if a text cannot run.
        """
        scores = batch.score(self, texts, seconds, Meter(progress), options)
        return scores[0] if isinstance(texts, str) and (seconds is None or isinstance(seconds, str)) else scores

    @property
    def labels(self) -> list[str]:
        """What the scores of a classifier are of; empty for other models."""
        count = int(self.model_info()["num_labels"])
        return [self._text(lambda *buffer, at=at: self._call(library.nvllm_label, at, *buffer)) for at in range(count)]

    def named_prompt(self, name: Optional[str] = None) -> str:
        """What stands before texts of a kind, such as "query", by the model's folder, or by its default; empty where it names none."""
        return self._text(lambda *buffer: self._call(library.nvllm_named_prompt, None if name is None else name.encode(), *buffer))

    # ---- text ----

    def tokenize(self, text: str, *, special: bool = True, parse_special: bool = False) -> list[int]:
        """The tokens of a text. `special` adds the tokens that begin and end a text; `parse_special` reads the spelling of a special token as
        that token.
        """
        encoded = text.encode()
        flags = special * TokenizeFlags.ADD_SPECIAL | parse_special * TokenizeFlags.PARSE_SPECIAL
        needed = c_size_t()
        tokens = (c_uint32 * (len(encoded) + 8))()
        try:
            self._call(library.nvllm_tokenize, encoded, len(encoded), flags, tokens, len(tokens), byref(needed))
        except Error as error:
            if error.status != Status.ERR_BUFFER_TOO_SMALL:
                raise
            tokens = (c_uint32 * needed.value)()
            self._call(library.nvllm_tokenize, encoded, len(encoded), flags, tokens, len(tokens), byref(needed))
        return tokens[: needed.value]

    def detokenize(self, tokens: Iterable[int], *, special: bool = False) -> str:
        """The text of tokens; `special` spells special tokens out."""
        array = _tokens(tokens, "tokens")
        flags = special * TokenizeFlags.PARSE_SPECIAL
        return self._text(lambda *buffer: self._call(library.nvllm_detokenize, array, len(array), flags, *buffer))

    def apply_chat_template(self, messages: Sequence[Mapping[str, Any]], **variables: Any) -> str:
        """The prompt of a conversation. `variables` are add_generation_prompt, tools, documents and those of the template."""
        said, given = json.dumps(messages, default=_as_dict).encode(), json.dumps(variables, default=_as_dict).encode()
        arguments = (said, len(said), given, len(given))
        return self._text(lambda *buffer: self._call(library.nvllm_apply_chat_template, *arguments, *buffer))

    @staticmethod
    def _text(fill: Callable[..., int]) -> str:
        capacity, needed = 16 << 10, c_size_t()
        while True:
            buffer = ctypes.create_string_buffer(capacity)
            try:
                fill(buffer, capacity, byref(needed))
            except Error as error:
                if error.status != Status.ERR_BUFFER_TOO_SMALL or needed.value <= capacity:
                    raise
                capacity = needed.value
                continue
            # The size includes the NUL that the library appends. One before it is part of the text.
            return buffer.raw[: needed.value - 1].decode("utf-8")

    # ---- cached prefixes ----

    def reset_prefix_cache(self) -> None:
        """Forgets all prefixes that no request uses and none pins."""
        self._call_alone(library.nvllm_reset_prefix_cache)

    def trim(self) -> int:
        """Gives memory of the KV cache back that no running request and no pinned prompt needs. Returns the number of bytes."""
        freed = c_uint64()
        self._call_alone(library.nvllm_trim, byref(freed))
        return freed.value

    def save_prefix(self, tokens: Iterable[int], *, cache_salt: int = 0) -> tuple[bytes, int]:
        """The keys and values of a cached prefix as bytes, and how many of its tokens they cover."""
        array = _tokens(tokens, "tokens")
        salt = integer(cache_salt, c_uint64, "cache_salt")
        needed, saved = c_size_t(), c_size_t()
        buffer = (c_uint8 * 0)()
        while True:
            try:
                arguments = (array, len(array), salt, buffer, len(buffer), byref(needed), byref(saved))
                self._call_alone(library.nvllm_save_prefix, *arguments)
                return bytes(memoryview(buffer)[: needed.value]), saved.value
            except Error as error:
                if error.status != Status.ERR_BUFFER_TOO_SMALL:
                    raise
            buffer = (c_uint8 * needed.value)()

    def expert_tokens(self, layer: int) -> list[int]:
        """How many tokens each expert of a layer was chosen for since an engine with `expert_statistics` was opened; empty for a layer without
        experts.
        """
        needed = c_size_t()
        at = integer(layer, c_size_t, "layer")
        counts = (c_uint64 * 128)()
        try:
            self._call_alone(library.nvllm_expert_tokens, at, counts, len(counts), byref(needed))
        except Error as error:
            if error.status != Status.ERR_BUFFER_TOO_SMALL:
                raise
            counts = (c_uint64 * needed.value)()
            self._call_alone(library.nvllm_expert_tokens, at, counts, len(counts), byref(needed))
        return counts[: needed.value]

    def restore_prefix(self, saved: bytes) -> int:
        """Puts a saved prefix into the prefix cache, and returns how many tokens it covers."""
        restored = c_size_t()
        array = (c_uint8 * len(saved)).from_buffer_copy(saved)
        self._call_alone(library.nvllm_restore_prefix, array, len(saved), byref(restored))
        return restored.value


def _as_dict(value: Any) -> Any:
    """Messages and tools may be any mappings."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{value!r} in a conversation is not JSON: it must be made of dicts, lists, strings, numbers, booleans and None")


def _micros(budget: Optional[float]) -> int:
    """A budget as nvllm_step wants it, for which 0 is one pass: time that has run out is the shortest budget."""
    if budget is None:
        return 0
    if not budget * 1e6 < 1 << 64:
        raise ValueError(f"budget is {budget!r}, but must be a number of seconds below {(1 << 64) / 1e6:.6g}")
    return max(1, round(max(0.0, budget) * 1e6))
