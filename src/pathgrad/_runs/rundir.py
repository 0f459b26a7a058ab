"""A run directory: the one place that holds the configuration and the results of a training.

    config.toml     the complete configuration
    metrics.jsonl   one JSON object per logged block
    checkpoints/    see `CheckpointFolder`
    lock            held while a process trains here
    .outputs        names of the other files that pathgrad wrote, such as evaluation.json

This module must load fast, because the command line imports it even to show help: no JAX here.
"""

import contextlib
import dataclasses
import errno
import io
import json
import math
import os
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._train.row import Row
from .._words.errors import UserError, named
from .files import TEMPORARY, sweep, write_atomically
from .toml import dump_toml

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

if TYPE_CHECKING:
    from .checkpoint_folder import CheckpointFolder

_OUTPUT_NAME = re.compile(r"\w[\w .-]*")


class RunError(UserError):
    """A run directory cannot be created, opened, written or used."""


@dataclasses.dataclass(frozen=True)
class RunDir:
    """Hold the files of one training in the directory `path`; made by `create` or `open`."""

    path: Path

    @classmethod
    def create(cls, path: Path, config: dict[str, Any], *, overwrite: bool = False) -> "RunDir":
        """Create a run directory, parents included, and write its `config.toml`.

        With `overwrite` it replaces the run that is there; only files that pathgrad wrote are removed. Raises
        a `RunError` if the directory is in use, holds something else, or cannot be written.
        """
        run = cls(path)
        dump_toml(config)  # it may raise, so before anything is created
        run.check_free(overwrite=overwrite)
        with run._reporting("create"):
            run.path.mkdir(parents=True, exist_ok=True)
        with run.locked():
            run.check_free(overwrite=overwrite)  # another process may have been quicker
            with run._reporting("write to"):
                run._remove_own_files()
            run.write_config(config)
        return run

    def remove(self) -> None:
        """Remove the run, if there is one, and the directory unless it holds other files."""
        if not (self.path / "config.toml").exists():
            return
        self.check_free(overwrite=True)
        with self.locked(), self._reporting("write to"):
            self._remove_own_files()
            (self.path / "config.toml").unlink(missing_ok=True)
            (self.path / "lock").unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.path.rmdir()

    def write_config(self, config: dict[str, Any]) -> None:
        """Replace the configuration, for a run that is resumed with changed options."""
        self._write("config.toml", [dump_toml(config).encode()])

    @classmethod
    def open(cls, path: Path) -> "RunDir":
        """Open a run directory; raises a `RunError` if there is none or it cannot be read."""
        _ = cls(path).config
        return cls(path)

    @property
    def config(self) -> dict[str, Any]:
        """The configuration, read from `config.toml`."""
        file = self.path / "config.toml"
        try:
            return tomllib.loads(file.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError) as error:
            what = "has no config.toml" if self.path.is_dir() else "does not exist"
            what = "is a file" if self.path.is_file() else what
            raise RunError(
                f"{self.path} is not a run directory: it {what}. Check the path, or start a run there with "
                "`pathgrad train`."
            ) from error
        except (OSError, ValueError, RecursionError) as error:
            raise RunError(f"{file} cannot be read: {error}. Fix or restore it.") from error

    @property
    def checkpoints(self) -> "CheckpointFolder":
        """The checkpoints of this run."""
        from .checkpoint_folder import CheckpointFolder

        return CheckpointFolder(self.path / "checkpoints")

    @property
    def is_locked(self) -> bool:
        """Whether a process is training here, checked without disturbing it."""
        if fcntl is None:
            return False
        try:
            # Do not create the file. A shared lock fails while an exclusive one is held, and otherwise is
            # released again at once.
            with (self.path / "lock").open("rb") as stream:
                fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # no such file, or a file system without locks
            return False
        return False

    @property
    def _metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    def append_metrics(self, row: Row) -> None:
        """Add one line to `metrics.jsonl` and flush it to the disk."""
        line = json.dumps(_finite(row.to_json())).encode() + b"\n"
        # Unbuffered, because closing a buffer would try again to write what failed here.
        with self._reporting("write to"), self._metrics.open("a+b", buffering=0) as stream:
            end = stream.seek(0, os.SEEK_END)
            stream.seek(max(end - 1, 0))
            if stream.read() not in (b"", b"\n"):  # half a line, left by a killed process
                stream.seek(0)
                end = stream.truncate(stream.read().rfind(b"\n") + 1)
            try:
                if stream.write(line) != len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(stream.fileno())
            except OSError:
                stream.truncate(end)  # half a line would spoil the next one
                raise

    def read_metrics(self, *, lenient: bool = False) -> list[Row]:
        """Return the rows of `metrics.jsonl`, without a last one that was cut off when the process ended.

        Objects without a step are not rows: they are left out if `lenient`, and else raise a `RunError`.
        """
        return [row for _, row in self._metric_lines(lenient=lenient)]

    def truncate_metrics(self, step: int) -> None:
        """Remove the rows of later steps, which a resumed run logs again, and an incomplete last line."""
        self._write(self._metrics.name, [line for line, row in self._metric_lines() if row.step <= step])

    def write_json(self, name: str, obj: Any) -> Path:
        """Write an output file as indented JSON, completely or not at all; NaN and infinity as `null`."""
        return self.write(name, json.dumps(_finite(obj), indent=2).encode() + b"\n")

    def write(self, name: str, content: bytes | memoryview) -> Path:
        """Write an output file, completely or not at all."""
        return self._write(self.output(name).name, [content])

    def _write(self, name: str, chunks: Iterable[Any]) -> Path:
        with self._reporting("write to"):
            write_atomically(self.path / name, chunks)
        return self.path / name

    def output(self, name: str) -> Path:
        """Return the path for an output file, and record that it belongs to the run.

        `create` with `overwrite` removes such files together with the run, and no others.
        """
        if not _OUTPUT_NAME.fullmatch(name):
            raise ValueError(f"`name` must be a plain file name; got {name!r}.")
        if name not in self._outputs():
            with self._reporting("write to"), (self.path / ".outputs").open("a+b") as stream:
                stream.seek(max(stream.seek(0, os.SEEK_END) - 1, 0))
                is_cut_off = stream.read() not in (b"", b"\n")  # by a kill: begin a new line
                stream.write(b"\n" * is_cut_off + f"{name}\n".encode())
        return self.path / name

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock for training; raises a `RunError` with the process id if another process holds it.

        The lock is released when the process ends, even if it is killed.
        """
        with self._reporting("lock"):
            stream = (self.path / "lock").open("a+b", buffering=0)
        with stream:
            self._take(stream)
            with contextlib.suppress(OSError):  # a full disk: the lock works without the process id
                stream.truncate(0)
                stream.write(str(os.getpid()).encode())
            yield

    def _take(self, stream: io.FileIO) -> None:
        if fcntl is None:
            return
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            stream.seek(0)
            holder = stream.read().decode() or "unknown"
            raise RunError(
                f"Another process (pid {holder}) is training in {self.path}. Wait until it ends, "
                f"stop it, or choose another {named('out')}."
            ) from error
        except OSError:
            pass  # some network file systems have no locks; training without one beats refusing to train

    def check_free(self, *, overwrite: bool) -> None:
        """Raise a `RunError` unless a run may be created here."""
        with self._reporting("look into"):
            names = os.listdir(self.path) if self.path.exists() else []
        held = [name for name in names if name != "lock" and not TEMPORARY.fullmatch(name)]
        if held and "config.toml" not in held:
            raise RunError(
                f"{self.path} is not empty and is not a run directory (it has no config.toml), so "
                f"nothing was written there. Choose another {named('out')}."
            )
        if held and overwrite and "experiment" not in self.config:
            raise RunError(
                f"{self.path / 'config.toml'} was not written by pathgrad, so nothing was replaced. Choose "
                f"another {named('out')}."
            )
        if held and not overwrite:
            raise RunError(
                f"{self.path} already holds a run. Choose another {named('out')}, continue this one with "
                f"{named('resume')}, or replace it with {named('overwrite')}."
            )

    def _remove_own_files(self) -> None:
        # The list of outputs is removed last, and config.toml is replaced in place: a process killed midway
        # leaves a directory that can be overwritten again.
        if (self.path / "checkpoints").is_dir():  # otherwise JAX need not be loaded
            self.checkpoints.clear()
        self.sweep()
        for name in ("metrics.jsonl", *self._outputs(), ".outputs"):
            (self.path / name).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove unfinished files of processes that were killed."""
        sweep(self.path, "*")

    def _outputs(self) -> list[str]:
        try:
            names = (self.path / ".outputs").read_text("utf-8", "replace").splitlines()
        except FileNotFoundError:
            return []
        return [name for name in names if _OUTPUT_NAME.fullmatch(name)]

    def _metric_lines(self, *, lenient: bool = False) -> list[tuple[bytes, Row]]:
        with self._reporting("read"):
            lines = self._metrics.read_bytes().splitlines() if self._metrics.exists() else []
        rows = []
        for number, line in enumerate(lines, start=1):
            where = f"Line {number} of {self._metrics}"
            try:
                numbers = dict(json.loads(line))
            except (TypeError, ValueError, RecursionError) as error:
                if number == len(lines):
                    break
                raise RunError(f"{where} is not a JSON object: {error}. Fix the line.") from error
            try:
                rows.append((line + b"\n", Row.of(numbers)))
            except ValueError as error:
                if not lenient:
                    raise RunError(f"{where} is not a row of metrics: {error} Fix the line.") from error
        return rows

    @contextlib.contextmanager
    def _reporting(self, verb: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RunError(
                f"Could not {verb} the run directory {self.path}: {error.strerror}. Check the path, its "
                "permissions and the free space."
            ) from error


def _finite(obj: Any) -> Any:
    """Return what JSON can hold; it has no NaN and no infinity, so they become `null`."""
    match obj:
        case float():
            return obj if math.isfinite(obj) else None
        case str() | int() | None:
            return obj
        case dict():
            return {key: _finite(value) for key, value in obj.items()}
        case list() | tuple():
            return [_finite(item) for item in obj]
        case Path():
            return str(obj)
    if callable(getattr(obj, "tolist", None)):  # arrays and scalars of NumPy and JAX
        return _finite(obj.tolist())
    raise TypeError(f"JSON cannot hold a {type(obj).__name__}: {obj!r}. Convert it first.")
