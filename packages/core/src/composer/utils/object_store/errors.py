"""Errors of many client kits, told as three: try again, not there, not allowed.

No kit is imported: what an error means is read from the classes it has, the HTTP status it carries
and the errors that caused it.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from typing import Any

from composer.utils.imports import MissingConditionalImportError
from composer.utils.object_store.base import ObjectStoreTransientError

__all__ = ["HiddenObjectError", "explain", "needs_extra", "service_code"]

_TRANSIENT_STATUS = frozenset({408, 429, 500, 502, 503, 504})
_TRANSIENT_CODES = frozenset(
    {"IncompleteBody", "InternalError", "RequestTimeout", "ServiceUnavailable", "SlowDown"}
)
_TRANSIENT_ERRNO = frozenset(
    {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETRESET}
)
# A folder is no object, and nothing is inside an object.
_MISSING = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
# Top-level package -> classes, with all that inherit from them.
_TRANSIENT_CLASSES = {
    "aiohttp": {"ClientConnectionError", "ClientPayloadError"},
    "azure": {"IncompleteReadError", "ServiceRequestError", "ServiceResponseError"},
    "botocore": {"ConnectionError", "HTTPClientError", "IncompleteReadError"},
    "fsspec": {"FSTimeoutError"},
    "http": {"IncompleteRead"},
    "httpx": {"TransportError"},
    "paramiko": {"SSHException"},
    "requests": {"ChunkedEncodingError", "ConnectionError", "Timeout"},
    "urllib3": {"ProtocolError", "TimeoutError"},
}
# Who asks is not known, which the service was not even asked about.
_FORBIDDEN_CLASSES = {
    "azure": {"ClientAuthenticationError"},
    "botocore": {"NoCredentialsError", "PartialCredentialsError", "TokenRetrievalError"},
    "google": {"DefaultCredentialsError"},
}
# Of the classes above, those that trying again does not help.
_LASTING_CLASSES = {"AuthenticationException", "BadHostKeyException", "SSLError"}


class HiddenObjectError(FileNotFoundError, PermissionError):
    """An object is missing or forbidden, and the credentials may not learn which.

    Example:
        >>> issubclass(HiddenObjectError, FileNotFoundError)
        True
        >>> issubclass(HiddenObjectError, PermissionError)
        True
    """


def explain(error: Exception, uri: str) -> Exception:
    """Tell what an error of a client kit means.

    Args:
        error: The error.
        uri: The object that it is about.

    Returns:
        An ``ObjectStoreTransientError``, a ``FileNotFoundError`` or a ``PermissionError`` that
        names the object, or the error itself where it is none of these.

    Example:
        >>> explain(ConnectionResetError("reset"), "s3://b/a")
        ObjectStoreTransientError('s3://b/a: ConnectionResetError: reset')
        >>> explain(KeyError("other"), "s3://b/a")
        KeyError('other')
    """
    if isinstance(error, ObjectStoreTransientError | HiddenObjectError):
        return error
    for link in _chain(error):
        kind = _kind(link)
        if kind is not None:
            text = str(error) or str(link)
            name = type(error).__name__ if kind is ObjectStoreTransientError else ""
            return kind(": ".join(filter(None, (uri, name, text))))
    return error


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _kind(error: BaseException) -> type[Exception] | None:
    status, code = _status(error), _code(error)
    if status in _TRANSIENT_STATUS or code in _TRANSIENT_CODES:
        return ObjectStoreTransientError
    if status == 404 or isinstance(error, _MISSING):
        return FileNotFoundError
    if status in (401, 403) or isinstance(error, PermissionError):
        return PermissionError
    if isinstance(error, ConnectionError | TimeoutError):
        return ObjectStoreTransientError
    if isinstance(error, OSError) and error.errno in _TRANSIENT_ERRNO:
        return ObjectStoreTransientError
    names = {(cls.__module__.partition(".")[0], cls.__name__) for cls in type(error).__mro__}
    if any(name in _FORBIDDEN_CLASSES.get(package, ()) for package, name in names):
        return PermissionError
    if any(name in _LASTING_CLASSES for _, name in names):
        return None
    if any(name in _TRANSIENT_CLASSES.get(package, ()) for package, name in names):
        return ObjectStoreTransientError
    return None


def _status(error: BaseException) -> int | None:
    """Return the HTTP status that an error carries."""
    response: Any = getattr(error, "response", None)
    if isinstance(response, dict):
        found = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return found if isinstance(found, int) else None
    for holder in (response, error):
        for name in ("status_code", "status", "code"):
            found = getattr(holder, name, None)
            if isinstance(found, str) and found.isdigit():
                found = int(found)
            if isinstance(found, int) and 100 <= found < 600:
                return found
    return None


def _code(error: BaseException) -> str | None:
    """Return the word by which services of the S3 kind name an error."""
    response: Any = getattr(error, "response", None)
    return response.get("Error", {}).get("Code") if isinstance(response, dict) else None


def service_code(error: BaseException) -> str | None:
    """Find the word by which services of the S3 kind name an error, in what caused it too.

    Args:
        error: The error.

    Returns:
        The word, such as ``ExpiredToken``, or ``None`` if there is none.

    Example:
        >>> service_code(ValueError("no answer of a service")) is None
        True
    """
    return next((code for link in _chain(error) if (code := _code(link)) is not None), None)


@contextlib.contextmanager
def needs_extra(extra: str, package: str) -> Iterator[None]:
    """Turn the error of a kit that is not installed into the command that installs it.

    Args:
        extra: The extra that brings it.
        package: The package that the block imports.

    Raises:
        MissingConditionalImportError: If the package is not there.

    Example:
        >>> with needs_extra("s3", "no_such_kit"):
        ...     import no_such_kit
        Traceback (most recent call last):
        composer.utils.imports.MissingConditionalImportError: ... pip install "composer-core[s3]"
    """
    try:
        yield
    except ModuleNotFoundError as error:
        # A kit that is there and misses something of its own says so itself.
        if (error.name or "").partition(".")[0] != package:
            raise
        raise MissingConditionalImportError(extra, package, distribution="composer-core") from error
