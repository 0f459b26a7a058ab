"""Kill a program inside its file operations.

`Moments` numbers the moments at which a file operation below a folder begins, is half done or has just ended,
and ends the program at one of them: by a signal that nothing survives, or, in tests within one process, by an
exception after which no file operation does anything any more.
"""

import builtins
import contextlib
import io
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock


class Killed(BaseException):
    """The program is dead; raised where it cannot be killed, because the test lives in the same process."""


def by_signal() -> NoReturn:
    """Kill this process."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("a killed process goes on")


class Moments:
    """Count moments, and kill at the one with the number `at`; `None` only counts."""

    def __init__(self, folder: Path, at: int | None, kill: Callable[[], NoReturn] | None = None) -> None:
        self.folder, self.at, self.kill = folder.absolute(), at, kill
        self.count, self.is_dead = 0, False

    def pass_by(self, name: str) -> None:
        """Pass a moment; `name` is for people who debug."""
        if self.is_dead:
            raise Killed(name)
        if self.count == self.at:
            if self.kill is not None:
                self.kill()
            self.is_dead = True
            raise Killed(name)
        self.count += 1

    def concerns(self, path: object) -> bool:
        """Return whether a path lies below the folder."""
        return isinstance(path, str | Path) and Path(path).absolute().is_relative_to(self.folder)

    @contextlib.contextmanager
    def watched(self) -> Iterator["Moments"]:
        """Watch the file operations of this process."""
        with contextlib.ExitStack() as stack:
            for name in ("replace", "unlink", "mkdir", "rmdir", "fsync"):
                # Within one process nothing has to reach the disk.
                is_idle = name == "fsync" and self.kill is None
                watched = self._around(name, (lambda number: None) if is_idle else getattr(os, name))
                stack.enter_context(mock.patch.object(os, name, watched))
            opening = self._opening(io.open)
            for module in (io, builtins):
                stack.enter_context(mock.patch.object(module, "open", opening))
            yield self

    def _around(self, name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
        def watched(path: Any, *more: Any, **options: Any) -> Any:
            if name != "fsync" and not self.concerns(path):
                return operation(path, *more, **options)
            self.pass_by(f"before {name} {path}")
            result = operation(path, *more, **options)
            self.pass_by(f"after {name} {path}")
            return result

        return watched

    def _opening(self, opening: Callable[..., Any]) -> Callable[..., Any]:
        def watched(path: Any, mode: str = "r", *more: Any, **options: Any) -> Any:
            if not self.concerns(path) or not set(mode) & set("wax+"):
                return opening(path, mode, *more, **options)
            self.pass_by(f"before open {path}")
            file = opening(path, mode, *more, **options)
            try:
                self.pass_by(f"after open {path}")
            except Killed:
                file.close()
                raise
            # The lock is handed on as what it is.
            return file if Path(path).name == "lock" else _Watched(file, self)

        return watched


class _Watched:
    """A file whose writes are moments to be killed at."""

    def __init__(self, file: Any, moments: Moments) -> None:
        self._file, self._moments = file, moments

    def write(self, content: Any) -> int:
        half = len(content) // 2
        self._file.write(content[:half])
        self._file.flush()
        self._moments.pass_by(f"half of a write to {self._file.name}")
        self._file.write(content[half:])
        self._file.flush()
        self._moments.pass_by(f"after a write to {self._file.name}")
        return len(content)

    def truncate(self, *size: int) -> int:
        self._moments.pass_by(f"before truncate {self._file.name}")
        return self._file.truncate(*size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> "_Watched":
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._file)
