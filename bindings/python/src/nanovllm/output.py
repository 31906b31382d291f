"""What does an engine say of a completion?"""

from __future__ import annotations

from ctypes import string_at
from dataclasses import dataclass, field
from typing import Any, Optional

from . import _abi
from ._abi import Finish
from .errors import Error
from .structure import parsed


@dataclass
class Output:
    """New tokens of a completion, or all of them where `Engine.generate` returns it."""

    request_id: int
    #: Of the completion within its request, from 0.
    index: int
    #: New text: it continues the prompt, so that a space at its beginning is kept.
    text: str
    #: New tokens.
    token_ids: list[int]
    #: "none" until the completion has ended; then "stop", "length", "cancelled", "error" or "expired".
    finish_reason: Finish
    #: Why it failed, where finish_reason is "error".
    error: Optional[Error]
    #: `tag` of the request's options.
    tag: int
    prompt_tokens: int
    #: Prompt tokens that were found in the prefix cache.
    cached_tokens: int
    #: Tokens generated so far.
    completion_tokens: int
    #: Seconds from adding the request to its first token; 0 before that.
    time_to_first_token: float
    #: Log-probability of each of token_ids, if num_logprobs is not 0.
    logprobs: list[float] = field(default_factory=list)
    #: The most likely tokens at each position and their log-probabilities, most likely first.
    top_logprobs: list[list[tuple[int, float]]] = field(default_factory=list)
    cumulative_logprob: float = 0.0
    #: Of each prompt token but the first, if num_prompt_logprobs is not 0.
    prompt_logprobs: list[float] = field(default_factory=list)
    prompt_top_logprobs: list[list[tuple[int, float]]] = field(default_factory=list)
    #: The pooled embedding, not normalized, of a request with `pooling`. `Engine.embed` gives arrays.
    embedding: list[float] = field(default_factory=list)
    #: The scores of a classifier, one for each label. `Engine.score` gives them alone.
    scores: list[float] = field(default_factory=list)
    #: Of a beam: what results are ranked by.
    score: float = 0.0
    #: Tokens of reasoning so far, if max_thinking_tokens of the request is set.
    reasoning_tokens: int = 0
    #: What `parsed` makes of the text.
    _target: Any = field(default=None, repr=False, compare=False)

    @property
    def finished(self) -> bool:
        """Whether this is the last output of its completion."""
        return self.finish_reason != Finish.NONE

    @property
    def parsed(self) -> Any:
        """The object that the text of a request with `json_schema` says: an instance of the class that was given, else what json.loads makes.

        For whole completions, and not for the outputs of a stream. Raises ValueError if the completion ended before its JSON did, and
        pydantic's ValidationError, a ValueError as well, if the class refuses what the schema allows.
        """
        return parsed(self, self._target)

    @staticmethod
    def _copied(native: _abi.nvllm_output) -> Output:
        """Copies what the library has only lent."""
        count = native.num_token_ids
        asked, prompt = native.num_prompt_logprobs, max(native.prompt_tokens, 1) - 1
        error = None
        if native.finish_reason == Finish.ERROR:
            message = native.error_message or b""
            error = Error(native.status, message.decode("utf-8", "replace"))
        return Output(
            request_id=native.request_id,
            index=native.index,
            text=string_at(native.text, native.text_len).decode("utf-8") if native.text_len else "",
            token_ids=native.token_ids[:count] if count else [],
            finish_reason=Finish.of(native.finish_reason),
            error=error,
            tag=native.tag,
            prompt_tokens=native.prompt_tokens,
            cached_tokens=native.cached_tokens,
            completion_tokens=native.completion_tokens,
            time_to_first_token=native.time_to_first_token_us / 1e6,
            logprobs=native.logprobs[:count] if native.logprobs else [],
            top_logprobs=_top(native.top_tokens, native.top_logprobs, count, native.num_logprobs),
            cumulative_logprob=native.cumulative_logprob,
            prompt_logprobs=native.prompt_logprobs[:prompt] if native.prompt_logprobs else [],
            prompt_top_logprobs=_top(native.prompt_top_tokens, native.prompt_top_logprobs, prompt, asked),
            embedding=native.embedding[: native.embedding_len] if native.embedding else [],
            scores=native.scores[: native.num_scores] if native.scores else [],
            score=native.score,
            reasoning_tokens=native.reasoning_tokens,
        )


#: Where fewer tokens have any probability than were asked for.
_NO_TOKEN = 0xFFFFFFFF


def _top(tokens: Any, logprobs: Any, rows: int, each: int) -> list[list[tuple[int, float]]]:
    if not tokens or not each:
        return []
    pairs = list(zip(tokens[: rows * each], logprobs[: rows * each]))
    return [[pair for pair in pairs[at : at + each] if pair[0] != _NO_TOKEN] for at in range(0, rows * each, each)]
