"""The checkpoints of one run."""

import contextlib
import dataclasses
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jaxtyping import PyTree

from .checkpoint import CheckpointError, DamagedCheckpoint, is_intact, load, save
from .files import TEMPORARY

# Older versions wrote .ckpt: `load` refuses those by name. Ignoring them would restart the run from scratch.
_NAME = re.compile(r"step-(\d{9,})\.(safetensors|ckpt)")
_KEPT = 2  # files, so that there is another if the newest is damaged


@dataclasses.dataclass(frozen=True)
class CheckpointFolder:
    """Keep the newest two checkpoints of one run in a folder, which is created when first needed.

    One process at a time may save into the folder (`RunDir.locked` ensures that); any number may read. Files
    that are not named like checkpoints are never touched.
    """

    folder: Path

    def save(self, tree: PyTree, *, step: int, meta: dict[str, Any]) -> Path:
        """Write a checkpoint (see `save`), then remove all but the newest two up to its step."""
        if step < 0:
            raise ValueError(f"`step` counts from 0; got {step}.")
        path = self.folder / f"step-{step:09d}.safetensors"
        _remove(self._temporaries())
        save(path, tree, step=step, meta=meta)
        _remove([old for old in self.paths() if _step(old) <= step][:-_KEPT])
        return path

    def paths(self) -> list[Path]:
        """List the checkpoints, oldest first."""
        files = self.folder.glob("step-*")
        return sorted((path for path in files if _NAME.fullmatch(path.name)), key=_step)

    def newest(self) -> Path | None:
        """Return the checkpoint of the latest step, damaged or not; `None` if there is none."""
        return next(reversed(self.paths()), None)

    def load_newest(self, like: PyTree) -> PyTree:
        """Load the checkpoint of the latest step (see `load`).

        If it is damaged, the error names the newest intact one and how to continue from there: falling back
        silently could hide a failing disk.
        """
        newest = self.newest()
        if newest is None:
            raise CheckpointError(
                f"There is no checkpoint in {self.folder}. The training ended before it saved one, or saved "
                "elsewhere: check the path, or start the training again."
            )
        try:
            return load(newest, like)
        except DamagedCheckpoint as error:
            raise CheckpointError(f"{error} {self._advice()}") from error

    def clear(self) -> None:
        """Remove all checkpoints, and the folder too if nothing else is in it."""
        _remove([*self._temporaries(), *self.paths()])
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def _advice(self) -> str:
        damaged = []
        for path in reversed(self.paths()):
            if is_intact(path):
                return (
                    f"The newest intact checkpoint is {path}. To continue from step {_step(path)}, "
                    f"move {' and '.join(damaged)} out of the folder and resume again."
                )
            damaged.append(str(path))
        return "The folder holds no intact checkpoint: start the training again."

    def _temporaries(self) -> list[Path]:
        """List the unfinished files left behind by a process that was killed while saving."""
        files = [(path, TEMPORARY.fullmatch(path.name)) for path in self.folder.glob(".step-*.tmp")]
        return [path for path, match in files if match and _NAME.fullmatch(match["name"])]


def _step(path: Path) -> int:
    return int(path.stem.removeprefix("step-"))


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        # A file too many is no reason to stop a training; the next save tries again.
        with contextlib.suppress(OSError):
            path.unlink()
