"""What has a prompt become? Its completions, whole, and what they cost."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, field, fields
from typing import Any, Optional

from ._abi import Finish
from .errors import Error
from .output import Output
from .prompts import Prompt


@dataclass(frozen=True)
class Usage:
    """The tokens of a request."""

    prompt_tokens: int
    #: Prompt tokens that were found in the prefix cache.
    cached_tokens: int
    #: Of all completions together.
    completion_tokens: int

    @property
    def total_tokens(self) -> int:
        """Of the prompt and the completions."""
        return self.prompt_tokens + self.completion_tokens


@dataclass
class Result(Output):
    """The completions of one prompt. What it has as an `Output`, such as `text`, is that of the first completion."""

    #: As it was given; of a chat, what the model's template made of the messages.
    prompt: Prompt = ""
    #: By their index: as many as the `n` of the request, or one that says why it failed.
    completions: list[Output] = field(default_factory=list, repr=False)

    @property
    def usage(self) -> Usage:
        """The tokens of the prompt, once, and of all completions."""
        return Usage(self.prompt_tokens, self.cached_tokens, sum(one.completion_tokens for one in self.completions))

    @staticmethod
    def _of(prompt: Prompt, completions: list[Output], target: Any) -> Result:
        for one in completions:
            one._target = target
        first = {one.name: getattr(completions[0], one.name) for one in fields(Output)}
        return Result(**first, prompt=prompt, completions=completions)


def failed(error: Error) -> Output:
    """The completion of a prompt that was refused."""
    return Output(
        request_id=0, index=0, text="", token_ids=[], finish_reason=Finish.ERROR, error=error, tag=0, prompt_tokens=0, cached_tokens=0,
        completion_tokens=0, time_to_first_token=0.0,
    )  # fmt: skip


def joined(outputs: Iterable[Output]) -> list[Output]:
    """Whole completions of the outputs of one request, by their index."""
    whole: dict[int, Output] = {}
    texts: dict[int, list[str]] = {}
    for output in outputs:
        texts.setdefault(output.index, []).append(output.text)
        before: Optional[Output] = whole.get(output.index)
        if before is None:
            # The lists of the caller's output stay as they are.
            copies = {"token_ids": [*output.token_ids], "logprobs": [*output.logprobs], "top_logprobs": [*output.top_logprobs]}
            whole[output.index] = copy(output)
            vars(whole[output.index]).update(copies)
            continue
        for name in ("token_ids", "logprobs", "top_logprobs"):
            getattr(before, name).extend(getattr(output, name))
        for name in ("finish_reason", "error", "completion_tokens", "cached_tokens", "time_to_first_token", "cumulative_logprob", "score", "reasoning_tokens", "embedding"):
            setattr(before, name, getattr(output, name))
        for name in ("prompt_logprobs", "prompt_top_logprobs"):
            setattr(before, name, getattr(before, name) or getattr(output, name))
    for index, output in whole.items():
        output.text = "".join(texts[index])
    return [whole[index] for index in sorted(whole)]
