"""How far is a call? A bar of tqdm where it is installed, else a line on stderr."""

from __future__ import annotations

import sys
import time
from typing import Any, Callable, Optional, Union

#: True for a bar, or a function of the completions that have ended and of all completions.
Progress = Union[bool, Callable[[int, int], Any], None]

#: Seconds between two states of the line.
_INTERVAL = 0.1


class Meter:
    """Shows the completions that have ended, and the tokens that were generated, which move at every step."""

    def __init__(self, progress: Progress) -> None:
        if not (progress is None or isinstance(progress, bool) or callable(progress)):
            raise TypeError(f"progress is {progress!r}, but must be True or a function of (finished, total)")
        self._receive = progress if callable(progress) else None
        self._shows = progress is True
        self._display: Optional[Union[_Bar, _Line]] = None

    @property
    def is_silent(self) -> bool:
        """Whether nobody looks."""
        return not self._shows and self._receive is None

    def report(self, finished: int, total: int, tokens: int) -> None:
        """Says how far the call is. What the caller's function raises ends the call."""
        if self._receive is not None:
            self._receive(finished, total)
        if self._shows:
            if self._display is None:
                self._display = _display(total)
            self._display.show(finished, tokens)

    def close(self) -> None:
        """Leaves the last state where it stands."""
        if self._display is not None:
            self._display.close()


def _display(total: int) -> Union[_Bar, _Line]:
    try:
        from tqdm.auto import tqdm  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        return _Line(total)
    # Looked at in every report, also in one that no completion has ended since.
    return _Bar(tqdm(total=total, desc="nanovllm", unit="completion", miniters=0))


class _Bar:
    def __init__(self, bar: Any) -> None:
        self._bar = bar
        self._began = time.monotonic()

    def show(self, finished: int, tokens: int) -> None:
        seconds = max(time.monotonic() - self._began, 1e-9)
        self._bar.set_postfix_str(f"{tokens} tokens, {tokens / seconds:.0f} tokens/s", refresh=False)
        self._bar.update(finished - self._bar.n)

    def close(self) -> None:
        self._bar.refresh()
        self._bar.close()


class _Line:
    """One line: rewritten on a terminal, elsewhere written once, at the end."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._began = self._shown = time.monotonic()
        self._text = ""

    def show(self, finished: int, tokens: int) -> None:
        now = time.monotonic()
        rate = tokens / max(now - self._began, 1e-9)
        self._text = f"nanovllm: {finished} of {self._total} completions, {tokens} tokens, {rate:.0f} tokens/s"
        if sys.stderr.isatty() and now - self._shown >= _INTERVAL:
            self._shown = now
            print(f"\r{self._text}\x1b[K", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        print(f"\r{self._text}\x1b[K" if sys.stderr.isatty() else self._text, file=sys.stderr, flush=True)


class Loading:
    """Shows how much of a model is loaded."""

    def __init__(self, progress: Union[bool, Callable[[float], Any], None]) -> None:
        if not (progress is None or isinstance(progress, bool) or callable(progress)):
            raise TypeError(f"progress is {progress!r}, but must be True or a function of a fraction")
        self._receive = progress if callable(progress) else None
        self._bar: Any = None
        if progress is True:
            try:
                from tqdm.auto import tqdm  # type: ignore[import-untyped, unused-ignore]
            except ImportError:
                self._bar = None
                self._receive = _percent
            else:
                self._bar = tqdm(total=1.0, desc="nanovllm: loading", bar_format="{l_bar}{bar}| {elapsed}")

    def report(self, fraction: float) -> None:
        """Says how much."""
        if self._receive is not None:
            self._receive(fraction)
        if self._bar is not None:
            self._bar.update(fraction - self._bar.n)

    def close(self) -> None:
        """Leaves the last state where it stands."""
        if self._bar is not None:
            self._bar.close()


def _percent(fraction: float) -> None:
    if sys.stderr.isatty():
        print(f"\rnanovllm: loading {fraction:.0%}", end="\n" if fraction >= 1 else "", file=sys.stderr, flush=True)
    elif fraction >= 1:
        print("nanovllm: loaded", file=sys.stderr)
