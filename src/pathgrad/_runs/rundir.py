"""A run directory: the one place where a training leaves what it was told and what it found.

    config.toml     the whole configuration
    metrics.jsonl   one JSON object per logged block
    checkpoints/    see `CheckpointFolder`
    lock            held while a process trains here
    .outputs        names of the further files that pathgrad wrote, such as evaluation.json

This module must load fast, because the command line imports it to answer for help: no JAX here.
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
from .files import TEMPORARY, write_atomically
from .toml import dump_toml

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

if TYPE_CHECKING:
    from .checkpoint_folder import CheckpointFolder

_OUTPUT_NAME = re.compile(r"\w[\w .-]*")


class RunError(UserError):
    """A run directory cannot be made, opened, written or used."""


@dataclasses.dataclass(frozen=True)
class RunDir:
    """Hold the files of one training in the directory `path`; made by `create` or `open`."""

    path: Path

    @classmethod
    def create(cls, path: Path, config: dict[str, Any], *, overwrite: bool = False) -> "RunDir":
        """Make a run directory, parents included, and write its `config.toml`.

        With `overwrite` it replaces the run that is there; only files that pathgrad wrote are removed. A
        `RunError` says that the directory is in use, holds something else, or cannot be written.
        """
        run = cls(path)
        dump_toml(config)  # before anything is made: it may refuse
        run._check_free(overwrite=overwrite)
        with run._reporting("create"):
            run.path.mkdir(parents=True, exist_ok=True)
        with run.locked():
            run._check_free(overwrite=overwrite)  # another process may have been quicker
            with run._reporting("write to"):
                run._remove_own_files()
            run.write_config(config)
        return run

    def remove(self) -> None:
        """Remove the run that is there, if any, and the directory unless it holds files of others."""
        if not (self.path / "config.toml").exists():
            return
        self._check_free(overwrite=True)
        with self.locked(), self._reporting("write to"):
            self._remove_own_files()
            (self.path / "config.toml").unlink(missing_ok=True)
            (self.path / "lock").unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.path.rmdir()

    def write_config(self, config: dict[str, Any]) -> None:
        """Replace the configuration, for a run that goes on under changed options."""
        self._write("config.toml", [dump_toml(config).encode()])

    @classmethod
    def open(cls, path: Path) -> "RunDir":
        """Open a run directory; a `RunError` says so if there is none or it cannot be read."""
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
            raise RunError(
                f"{self.path} is not a run directory: it {what}. Check the path, or start a run there with "
                "`pathgrad train`."
            ) from error
        except (OSError, ValueError) as error:
            raise RunError(f"{file} cannot be read: {error}. Fix or restore it.") from error

    @property
    def checkpoints(self) -> "CheckpointFolder":
        """The checkpoints of this run."""
        from .checkpoint_folder import CheckpointFolder

        return CheckpointFolder(self.path / "checkpoints")

    @property
    def is_locked(self) -> bool:
        """Whether a process trains here, found out without disturbing it."""
        if fcntl is None:
            return False
        try:
            # Not to be made if it is not there. A shared lock fails where an exclusive one is held, and is
            # gone again at once where none is.
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
        """Add one line to `metrics.jsonl` and bring it to the disk."""
        line = json.dumps(_finite(row.to_json())).encode() + b"\n"
        # Unbuffered, because a buffer would try again to write at closing what failed here.
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
        """Return the rows of `metrics.jsonl`, without a last one torn by the end of its process.

        Objects that are no rows, for lack of a step, are left out if `lenient`, and else a `RunError`.
        """
        return [row for _, row in self._metric_lines(lenient=lenient)]

    def truncate_metrics(self, step: int) -> None:
        """Forget the rows of later steps, which a resumed run logs again, and a torn last line."""
        self._write(self._metrics.name, [line for line, row in self._metric_lines() if row.step <= step])

    def write_json(self, name: str, obj: Any) -> Path:
        """Write an output as indented JSON, whole or not at all; NaN and infinity as `null`."""
        return self.write(name, json.dumps(_finite(obj), indent=2).encode() + b"\n")

    def write(self, name: str, content: bytes | memoryview) -> Path:
        """Write an output, whole or not at all."""
        return self._write(self.output(name).name, [content])

    def _write(self, name: str, chunks: Iterable[Any]) -> Path:
        with self._reporting("write to"):
            write_atomically(self.path / name, chunks)
        return self.path / name

    def output(self, name: str) -> Path:
        """Return the path for an output file, and remember that it belongs to the run.

        `create` with `overwrite` removes such files together with the run, and no others.
        """
        if not _OUTPUT_NAME.fullmatch(name):
            raise ValueError(f"`name` must be a plain file name; got {name!r}.")
        if name not in self._outputs():
            with self._reporting("write to"), (self.path / ".outputs").open("ab") as stream:
                stream.write(f"{name}\n".encode())
        return self.path / name

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Train here alone: while another process does, this raises a `RunError` with its number.

        The lock ends with the process, even a killed one.
        """
        with self._reporting("lock"):
            stream = (self.path / "lock").open("a+b", buffering=0)
        with stream:
            self._take(stream)
            with contextlib.suppress(OSError):  # a full disk: the lock holds without the number
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
            pass  # some network file systems have no locks; training there beats refusing to

    def _check_free(self, *, overwrite: bool) -> None:
        with self._reporting("look into"):
            names = os.listdir(self.path) if self.path.exists() else []
        held = [name for name in names if name != "lock" and not TEMPORARY.fullmatch(name)]
        if held and "config.toml" not in held:
            raise RunError(
                f"{self.path} is not empty and is not a run directory (it has no config.toml), so "
                f"nothing is written there. Choose another {named('out')}."
            )
        if held and overwrite and "experiment" not in self.config:
            raise RunError(
                f"{self.path / 'config.toml'} is not one of pathgrad's, so nothing is replaced there. Choose "
                f"another {named('out')}."
            )
        if held and not overwrite:
            raise RunError(
                f"{self.path} already holds a run. Choose another {named('out')}, go on with this one by "
                f"{named('resume')}, or replace it by {named('overwrite')}."
            )

    def _remove_own_files(self) -> None:
        # The list of outputs goes last, and config.toml is replaced in place: a process killed half way
        # leaves a directory that can be overwritten again.
        if (self.path / "checkpoints").is_dir():  # else JAX need not be loaded
            self.checkpoints.clear()
        for name in ("metrics.jsonl", *self._outputs(), ".outputs"):
            (self.path / name).unlink(missing_ok=True)

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
            except (TypeError, ValueError) as error:
                if number == len(lines):
                    break
                raise RunError(f"{where} is no JSON object: {error}. Fix it.") from error
            try:
                rows.append((line + b"\n", Row.of(numbers)))
            except ValueError as error:
                if not lenient:
                    raise RunError(f"{where} is no row of metrics: {error} Fix it.") from error
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
    """Return what JSON can hold, which knows no NaN and no infinity: they become `null`."""
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
