"""Enums that users may spell as strings.

Arguments such as a precision, a time unit or an event are enums inside the library and plain
strings in scripts. ``StringEnum`` makes the two interchangeable at the door while staying cheap
inside: members hash by identity, so look-ups in sets and dictionaries never run Python code.

This module imports nothing heavy: it is used by command lines that must start at once.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from composer.utils.suggestions import did_you_mean

__all__ = ["StringEnum"]


class StringEnum(Enum):
    """Base class of enums with upper-case names and lower-case string values.

    Members are found by value, by name in any case, or by themselves, and compare equal to any such
    spelling. Inside the library compare members with ``is``; the lenient ``==`` is for users. A
    member hashes by identity, so a string never finds a member in a dictionary or a set.

    Args:
        *args: The value of a member; Python passes it.

    Raises:
        ValueError: If a member's name is not upper case or its value not lower case, or on
            look-up, if nothing has that name.
        TypeError: If a member's value is not a string.

    Example:
        >>> class Fruit(StringEnum):
        ...     APPLE = "apple"
        ...     PEAR = "pear"
        >>> Fruit("APPLE") is Fruit("apple") is Fruit(Fruit.APPLE)
        True
        >>> Fruit.PEAR == "pear"
        True
    """

    _value_: str

    def __init__(self, *args: object) -> None:
        if len(args) != 1 or not isinstance(args[0], str):
            raise TypeError(
                f"{type(self).__name__}.{self._name_} has the value {args!r}; "
                "the value of a StringEnum member is one string."
            )
        value = args[0]
        if self._name_ != self._name_.upper():
            raise ValueError(
                f"{type(self).__name__}.{self._name_}: names of StringEnum members are upper case."
            )
        if value != value.lower():
            raise ValueError(
                f"{type(self).__name__}.{self._name_} has the value {value!r}; "
                "values of StringEnum members are lower case."
            )

    @staticmethod
    def _generate_next_value_(name: str, start: int, count: int, last_values: list[Any]) -> str:
        return name.lower()

    @classmethod
    def _missing_(cls, value: object) -> StringEnum:
        if isinstance(value, str):
            lowered = value.lower()
            member = cls._value2member_map_.get(lowered) or cls.__members__.get(value.upper())
            if isinstance(member, cls):
                return member
        accepted = [member._value_ for member in cls]
        hint = did_you_mean(value, accepted) if isinstance(value, str) else ""
        raise ValueError(
            f"{value!r} is not a valid {cls.__name__}; accepted are: {', '.join(accepted)}.{hint}"
        )

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, str):
            return self._value_ == other.lower() or self._name_ == other.upper()
        return False

    __hash__ = object.__hash__
