"""What is killed: one case for each experiment and command, as small as it can be."""

import dataclasses
import importlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

DENSITY = """
import jax.numpy as jnp

def bent(x):
    return -0.5 * (x[0] ** 2 + (x[1] - 0.3 * x[0] ** 2) ** 2 / 0.25)
"""
_BENT = ["dens.py:bent", "--dim", "2"]
_FLOW = ["--width", "4", "--depth", "1", "--solver-steps", "2"]
_SHORT = ["--steps", "12", "--block", "2", "--batch", "8"]
_NEWTON = ["--optimizer", "gauss-newton", "--steps", "4"]
_OFTEN = ["--checkpoint-seconds", "0"]
_FIT = ["--flow", "tied", "--batch", "32", "--first", "20", "--look-draws", "500", "--max-seconds", "9999"]
_VAE = [
    *("--preset", "tiny", "--dataset", "freyfaces", "--hidden", "8", "--latent", "2", "--width", "4"),
    *("--solver-steps", "2", "--batch", "100", "--epochs", "1", "--warmup-epochs", "1"),
    # The preset ends by the clock.
    *("--block", "4", "--max-seconds", "9999"),
]


@dataclasses.dataclass(frozen=True)
class Case:
    """A command that is killed.

    Attributes:
        start: The words of the command, but for the directory.
        share: Its part of all kills.
        is_decided_by_clock: Whether what it does depends on the clock; it is compared with a run that repeats
            its decisions.
        is_prepared: Whether it works on a run that `start` trains, instead of training: it is evaluated.
    """

    name: str
    start: tuple[str, ...]
    share: int
    is_decided_by_clock: bool = False
    is_prepared: bool = False

    def words(self, path: Path) -> list[str]:
        """Return the command as its user types it: with --resume if there is a run."""
        if self.is_prepared and path.name != "prepared":
            return ["evaluate", str(path), "--samples", "300", "--no-mode-search"]
        is_there = (path / "config.toml").exists() or any(path.glob("*/config.toml"))
        start = [self.start[0], *self.start[1:]]
        if is_there and "best" not in start:  # a ladder is planned again from its options
            start = start[:1] if start[0] == "fit" else start[:2]
        often = [] if self.is_prepared else _OFTEN
        return [*start, "--out", str(path), *often, *(["--resume"] if is_there else [])]

    def setup(self, path: Path, prepared: Path) -> None:
        """Copy the run to work on, if there is one."""
        if self.is_prepared and prepared != path:
            shutil.copytree(prepared, path)

    def prepared_by(self, attack: Any, path: Path) -> None:
        """Train the run to work on."""
        attack.run(path.name, [])
        attack.moments = 0

    def prepare(self) -> None:
        """Make the ladder short, in the process that runs the command."""
        ladder: Any = importlib.import_module("pathgrad.experiments.phi4.ladder")
        small = dataclasses.replace(ladder._SMALL, features=4, channels=2, solver_steps=4)
        rungs = {6: (small, 2), 8: (dataclasses.replace(small, features=5, channels=3), 2)}
        ladder._RUNGS = {size: rungs[size] for size in rungs}


def _train(name: str, share: int, *words: str, **more: bool) -> Case:
    return Case(name, ("train", *words), share, **more)


CASES = (
    _train("toy", 18, "toy", *_FLOW, *_SHORT),
    _train("toy-gauss-newton", 9, "toy", *_FLOW, *_NEWTON),
    _train("toy-stages", 8, "toy", *_FLOW, *_SHORT, "--newton-steps", "3"),
    _train("phi4", 10, "phi4", "--size", "4", "--coupling", "1", "--solver-steps", "2", *_SHORT),
    _train("density", 10, "density", *_BENT, *_FLOW, *_SHORT),
    Case("fit", ("fit", *_BENT, *_FIT, "--rounds", "3"), 12),
    Case("default-fit", ("fit", *_BENT, "--max-seconds", "25"), 6, is_decided_by_clock=True),
    _train("ladder", 9, "phi4", "--preset", "best", "--size", "8"),
    _train("vae", 8, "vae", *_VAE),
    _train("evaluate", 10, "toy", *_FLOW, *_SHORT, is_prepared=True),
)


def start_clean() -> None:
    """Import everything, and compute nothing: a process that computes cannot be forked."""
    for name in ("train", "evaluate", "report", "processes"):
        importlib.import_module(f"pathgrad._cli.{name}")
    for name in ("phi4.problem", "vae.problem", "fit.deciding", "density.problem", "toy.targets"):
        importlib.import_module(f"pathgrad.experiments.{name}")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
    jax: Any = importlib.import_module("jax")
    if jax.config.jax_compilation_cache_dir is None:
        jax.config.update("jax_compilation_cache_dir", tempfile.mkdtemp(prefix="compiled-"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
