"""Functions run on several ranks of this machine, within a second.

Importing torch takes seconds, so ranks are forked from a server process that imported it once. The
server itself never computes: a process that ran autograd may not fork.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

__all__ = ["RankError", "RankServer"]


class RankError(AssertionError):
    """A rank failed, or did not come to its end in time; holds what every rank said."""


class RankServer:
    """Starts the server when it is first used; close it at the end."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def run(
        self, function: Any, *arguments: Any, size: int = 2, timeout: float = 60.0
    ) -> list[Any]:
        """Run a module-level function of a test file on several ranks.

        Args:
            function: The function; it is loaded from its file again on each rank.
            arguments: Its arguments, picklable.
            size: The number of ranks.
            timeout: Seconds after which ranks are killed.

        Returns:
            What it returned, by rank.

        Raises:
            RankError: If a rank failed or was killed.
        """
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "composer_testing.ranks"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "arguments").write_bytes(pickle.dumps(arguments))
            request = {
                "file": function.__code__.co_filename,
                "function": function.__qualname__,
                "folder": folder,
                "size": size,
                "timeout": timeout,
            }
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
            if answer["failed"]:
                said = [
                    f"--- rank {rank}: {answer['codes'][rank]}\n" + _read(folder, rank, "log")
                    for rank in range(size)
                ]
                raise RankError(f"ranks {answer['failed']} failed\n" + "\n".join(said))
            return [
                pickle.loads(Path(folder, f"result-{rank}").read_bytes()) for rank in range(size)
            ]

    def close(self) -> None:
        """End the server."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(30)
            assert self._process.stdout is not None
            self._process.stdout.close()


def _read(folder: str, rank: int, what: str) -> str:
    path = Path(folder, f"{what}-{rank}")
    return path.read_text(errors="replace") if path.exists() else ""


def _serve() -> None:
    import torch
    import torch._dynamo  # which making an optimizer imports, and that takes seconds
    import torch.distributed
    import torch.nn.parallel
    import torch.optim

    import composer.callbacks
    import composer.loggers
    import composer.trainer  # noqa: F401 - the ranks find all of this imported

    assert torch.distributed.is_available()
    for line in sys.stdin:
        request = json.loads(line)
        size = request["size"]
        children: dict[int, int] = {}
        for rank in range(size):
            child = os.fork()
            if child == 0:
                _be_rank(request, rank)
            children[child] = rank
        codes: list[int | None] = [None] * size
        deadline = time.monotonic() + request["timeout"]
        while children:
            child, status = os.waitpid(-1, os.WNOHANG)
            if child:
                codes[children.pop(child)] = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > deadline:
                for late in children:
                    os.kill(late, signal.SIGKILL)
                deadline += 1000
            else:
                time.sleep(0.01)
        failed = [rank for rank, code in enumerate(codes) if code != 0]
        print(json.dumps({"failed": failed, "codes": codes}), flush=True)


def _be_rank(request: dict[str, Any], rank: int) -> None:
    """Run one rank and end the process; it never returns to the server's loop."""
    code = 1
    folder = Path(request["folder"])
    log = os.open(folder / f"log-{rank}", os.O_CREAT | os.O_WRONLY)
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        size = str(request["size"])
        os.environ.update(
            RANK=str(rank),
            LOCAL_RANK=str(rank),
            WORLD_SIZE=size,
            LOCAL_WORLD_SIZE=size,
            NODE_RANK="0",
        )
        _join(folder, rank, request["size"])
        spec = importlib.util.spec_from_file_location("rank_script", request["file"])
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["rank_script"] = module
        spec.loader.exec_module(module)
        arguments = pickle.loads((folder / "arguments").read_bytes())
        result = getattr(module, request["function"])(*arguments)
        (folder / f"result-{rank}").write_bytes(pickle.dumps(result))
        code = 0
    except SystemExit as error:
        traceback.print_exc()
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # threads of the process group may not end by themselves


def _join(folder: Path, rank: int, size: int) -> None:
    """Make the process group over a file, which needs no port."""
    import datetime

    import torch.distributed

    torch.distributed.init_process_group(
        "gloo",
        store=torch.distributed.FileStore(str(folder / "store"), size),
        rank=rank,
        world_size=size,
        timeout=datetime.timedelta(seconds=30),
    )


if __name__ == "__main__":
    _serve()
