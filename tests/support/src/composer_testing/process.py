"""Python in a process of its own, for what an imported module would hide."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

__all__ = ["run_python"]


def run_python(
    code: str,
    *,
    options: Sequence[str] = ("-P",),
    environment: Mapping[str, str] | None = None,
    timeout: float = 240.0,
) -> subprocess.CompletedProcess[str]:
    """Run a piece of Python in a fresh interpreter.

    Args:
        code: The program.
        options: Interpreter options.
        environment: Variables to set beside those of this process.
        timeout: Seconds after which it is killed.

    Returns:
        The finished process with its output as text.

    Raises:
        AssertionError: If it ends with another status than 0; the message holds its output.

    Example:
        >>> run_python("print(6 * 7)").stdout
        '42\\n'
    """
    done = subprocess.run(
        [sys.executable, *options, "-c", code],
        env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if done.returncode:
        raise AssertionError(f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done
