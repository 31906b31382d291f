"""How does a value of an enumeration of the C API look in Python? As its name, a string that also equals its number."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self


class Name(str, Enum):
    """A member of an enumeration: Finish.STOP is the string "stop", and int(Finish.STOP) is its number in the C API.

    It prints as that string. It also compares equal to that number. Its hash is that of the string: a dict or a set finds it by its name.
    """

    number: int

    def __new__(cls, text: str, number: int) -> Self:
        member = str.__new__(cls, text)
        member._value_ = text
        member.number = number
        return member

    @classmethod
    def of(cls, value: Any) -> Self:
        """A member by its number, or by its name in any case. Raises ValueError if there is none."""
        name = value.lower() if isinstance(value, str) else None
        for member in cls:
            if member.value == name or member.number == value:
                return member
        raise ValueError(f"{value!r} is no {cls.__name__}, but must be one of {', '.join(one.value for one in cls)}")

    @classmethod
    def _missing_(cls, value: Any) -> Self:
        return cls.of(value)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            return self.number == other
        return str.__eq__(self, other) is True

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__

    def __int__(self) -> int:
        return self.number

    __str__ = str.__str__
    __repr__ = str.__repr__
