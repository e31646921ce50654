"""A report of the machine and the installed versions, for questions and bug reports."""

from __future__ import annotations

import functools
import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

import torch

from composer.utils import dist

__all__ = [
    "configure_excepthook",
    "disable_env_report",
    "enable_env_report",
    "get_composer_env_dict",
    "print_env",
]


def _distributions() -> dict[str, str]:
    """Find the installed distributions of this project and their versions."""
    found = {}
    for one in metadata.distributions():
        name = one.metadata["Name"] or ""
        if name.startswith("composer-"):
            found[name] = one.version
    return dict(sorted(found.items()))


def _version_of(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _cpu_model() -> str:
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or "unknown"


def _gpu_model() -> str:
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return "Apple GPU" if torch.backends.mps.is_available() else "none"


def get_composer_env_dict() -> dict[str, Any]:
    """Collect facts about the machine and this installation.

    Returns:
        Name to number or text, ready to be logged.

    Example:
        >>> get_composer_env_dict()["local_world_size"]
        1
    """
    local_world_size = dist.get_local_world_size()
    return {
        "composer_version": _version_of("composer-core"),
        "composer_packages": _distributions(),
        "python_version": platform.python_version(),
        "torch_version": torch.__version__,
        "host_processor_model_name": _cpu_model(),
        "host_processor_core_count": os.cpu_count(),
        "node_world_size": dist.get_world_size() // max(local_world_size, 1),
        "local_world_size": local_world_size,
        "accelerator_model_name": _gpu_model(),
        "cuda_device_count": torch.cuda.device_count(),
    }


def print_env(file: TextIO | None = None) -> None:
    """Print the report.

    Args:
        file: Where to; by default standard output.

    Example:
        >>> import io
        >>> text = io.StringIO()
        >>> print_env(text)
        >>> "torch" in text.getvalue()
        True
    """
    facts = get_composer_env_dict()
    lines = ["---------------------------------", "Environment report", ""]
    packages = facts.pop("composer_packages")
    lines += [f"{name}: {version}" for name, version in packages.items()]
    lines += [f"{name}: {value}" for name, value in facts.items()]
    lines += [
        f"platform: {platform.platform()}",
        f"CUDA of torch: {torch.version.cuda}",
        f"HIP of torch: {torch.version.hip}",
        f"cuDNN: {torch.backends.cudnn.version() if torch.cuda.is_available() else None}",
        f"numpy: {_version_of('numpy')}",
        "---------------------------------",
    ]
    print("\n".join(lines), file=sys.stdout if file is None else file)


def configure_excepthook() -> None:
    """Print the report when an exception ends the process; the earlier hook still runs first.

    Example:
        >>> configure_excepthook()
        >>> disable_env_report()
    """
    earlier = sys.excepthook
    if isinstance(earlier, functools.partial) and earlier.func is _report_after:
        return
    sys.excepthook = functools.partial(_report_after, earlier)


def _report_after(
    earlier: Any,
    exc_type: type[BaseException],
    exc: BaseException,
    traceback: TracebackType | None,
) -> None:
    earlier(exc_type, exc, traceback)
    # Who presses Ctrl-C has no question.
    if not issubclass(exc_type, KeyboardInterrupt):
        print_env(sys.stderr)


def enable_env_report() -> None:
    """Turn the report after an uncaught exception on.

    Example:
        >>> enable_env_report()
        >>> disable_env_report()
    """
    configure_excepthook()


def disable_env_report() -> None:
    """Turn the report after an uncaught exception off.

    Example:
        >>> disable_env_report()
    """
    hook = sys.excepthook
    if isinstance(hook, functools.partial) and hook.func is _report_after:
        sys.excepthook = hook.args[0]


def main() -> None:
    """Print the report: the command ``composer_collect_env``.

    Example:
        >>> main()
        ---------------------------------
        Environment report
        ...
    """
    print_env()
