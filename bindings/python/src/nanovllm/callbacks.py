"""How does Python code run inside a call of the C API, and how does it end that call?"""

from __future__ import annotations

from collections.abc import Generator
from ctypes import CFUNCTYPE, c_int32, cast
from typing import Any, Callable


class Reports:
    """A progress callback that passes its first argument to `receive`. An exception ends the call: one of `receive`, or one of a handler of
    a signal that arrived meanwhile, such as KeyboardInterrupt.
    """

    def __init__(self, receive: Callable[[Any], Any], argument: Any, type_in_c: Any) -> None:
        self._raised: list[BaseException] = []
        # Python runs handlers of signals when it enters a function, before any `try` in it, and ctypes drops what is raised there. A generator
        # is resumed where it is suspended, which is inside its `try`.
        answers = _answers(receive, self._raised)
        next(answers)
        # `send` takes one argument. C passes user_data as well, which a function of its calling convention may ignore.
        self.function = cast(CFUNCTYPE(c_int32, argument)(answers.send), type_in_c)

    def raise_again(self) -> None:
        """Raises what ended the call."""
        if self._raised:
            raise self._raised.pop() from None


def _answers(receive: Callable[[Any], Any], raised: list[BaseException]) -> Generator[int, Any, None]:
    """0 to continue, 1 to end the call."""
    try:
        while True:
            receive((yield 0))
    except GeneratorExit:
        raise
    except BaseException as error:
        raised.append(error)
    while True:
        yield 1
