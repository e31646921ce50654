"""Try again what fails now and then, such as a request to a store."""

from __future__ import annotations

import functools
import inspect
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

__all__ = ["retry"]

TCallable = TypeVar("TCallable", bound=Callable[..., Any])


@overload
def retry(exc_class: TCallable) -> TCallable: ...


@overload
def retry(
    exc_class: type[Exception] | Sequence[type[Exception]] = ...,
    num_attempts: int = ...,
    initial_backoff: float = ...,
    max_jitter: float = ...,
    *,
    sleep: Callable[[float], object] | None = ...,
) -> Callable[[TCallable], TCallable]: ...


def retry(
    exc_class: Any = Exception,
    num_attempts: int = 3,
    initial_backoff: float = 1.0,
    max_jitter: float = 0.5,
    *,
    sleep: Callable[[float], object] | None = None,
) -> Any:
    """Decorate a function so that it is called again after some exceptions.

    The waits double. A function with an argument ``retry_index`` is told how many attempts came
    before.

    Args:
        exc_class: The exception class, or several. As ``@retry`` without brackets: the function
            itself.
        num_attempts: How often to call at most.
        initial_backoff: Seconds to wait after the first failure.
        max_jitter: Up to this many random seconds are added to each wait, so that many clients do
            not come back at once.
        sleep: Called with the seconds to wait, ``time.sleep`` by default.

    Returns:
        The decorated function, or the decorator.

    Raises:
        ValueError: If a number is out of range.

    Example:
        >>> @retry(ValueError, num_attempts=3, initial_backoff=0, max_jitter=0)
        ... def third_time(retry_index):
        ...     if retry_index < 2:
        ...         raise ValueError
        ...     return retry_index
        >>> third_time()
        2
    """
    if num_attempts < 1:
        raise ValueError(f"num_attempts={num_attempts} must be at least 1.")
    if initial_backoff < 0 or max_jitter < 0:
        raise ValueError(
            f"initial_backoff={initial_backoff} and max_jitter={max_jitter} must not be negative."
        )
    caught: tuple[type[Exception], ...]
    if isinstance(exc_class, type) and issubclass(exc_class, Exception):
        caught = (exc_class,)
    elif isinstance(exc_class, Sequence):
        caught = tuple(exc_class)
    else:
        return retry(Exception)(exc_class)

    def decorate(function: TCallable) -> TCallable:
        wants_index = "retry_index" in inspect.signature(function).parameters
        # Its own generator: waiting must not change the random numbers of a training run.
        jitter = random.Random()

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            for attempt in range(num_attempts):
                if wants_index:
                    kwargs["retry_index"] = attempt
                try:
                    return function(*args, **kwargs)
                except caught:
                    if attempt + 1 == num_attempts:
                        raise
                    wait = initial_backoff * 2**attempt + jitter.random() * max_jitter
                    (sleep or time.sleep)(wait)
            raise AssertionError("unreachable")

        return call  # type: ignore[return-value]

    return decorate
