"""The checkpoints of one training."""

import contextlib
import dataclasses
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jaxtyping import PyTree

from .checkpoint import CheckpointError, DamagedCheckpoint, is_intact, load, save
from .files import TEMPORARY

# Older versions wrote .ckpt; `load` says which. To overlook them would be to begin a run again.
_NAME = re.compile(r"step-(\d{9,})\.(safetensors|ckpt)")
_KEPT = 2  # files: if the newest is damaged, there is another


@dataclasses.dataclass(frozen=True)
class CheckpointFolder:
    """Keep the newest two checkpoints of one training in a folder, which is made when first needed.

    One process at a time may save into the folder (`RunDir.locked` sees to that); any number may read. Files
    with names that the folder does not give itself are never touched.
    """

    folder: Path

    def save(self, tree: PyTree, *, step: int, meta: dict[str, Any]) -> Path:
        """Write a checkpoint (see `save`), then remove older ones; those of later steps do not count."""
        if step < 0:
            raise ValueError(f"`step` counts from 0; got {step}.")
        path = self.folder / f"step-{step:09d}.safetensors"
        _remove(self._temporaries())
        save(path, tree, step=step, meta=meta)
        _remove([old for old in self.paths() if _step(old) <= step][:-_KEPT])
        return path

    def paths(self) -> list[Path]:
        """List the checkpoints, oldest first."""
        found = self.folder.glob("step-*")
        return sorted((path for path in found if _NAME.fullmatch(path.name)), key=_step)

    def newest(self) -> Path | None:
        """Return the checkpoint of the latest step, damaged or not; `None` if there is none."""
        return next(reversed(self.paths()), None)

    def load_newest(self, like: PyTree) -> PyTree:
        """Load the checkpoint of the latest step (see `load`).

        If it is damaged, the error names the newest intact one and how to continue from there: to go back
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
            raise CheckpointError(f"{error} {self._way_back()}") from error

    def clear(self) -> None:
        """Remove all checkpoints, and the folder too if nothing else is in it."""
        _remove([*self._temporaries(), *self.paths()])
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def _way_back(self) -> str:
        broken = []
        for path in reversed(self.paths()):
            if is_intact(path):
                return (
                    f"The newest intact checkpoint is {path}. To continue from step {_step(path)}, "
                    f"move {' and '.join(broken)} out of the folder and resume again."
                )
            broken.append(str(path))
        return "No intact checkpoint is beside it: the training must be started again."

    def _temporaries(self) -> list[Path]:
        """List what a process that was killed while it saved has left behind."""
        found = [(path, TEMPORARY.fullmatch(path.name)) for path in self.folder.glob(".step-*.tmp")]
        return [path for path, match in found if match and _NAME.fullmatch(match["name"])]


def _step(path: Path) -> int:
    return int(path.stem.removeprefix("step-"))


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        # A file too many is no reason to end a training; the next save tries again.
        with contextlib.suppress(OSError):
            path.unlink()
