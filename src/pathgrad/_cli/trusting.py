"""What a reader of a run allows: `--density` and `--trust`."""

import dataclasses
import sys
from pathlib import Path

import pathgrad as pg
from pathgrad._words.errors import as_options


@dataclasses.dataclass(frozen=True)
class Trusting:
    """Which code of the run may run."""

    density: str | None = None
    """The code that the run fits, as FILE.py:NAME or MODULE:NAME, in place of what its options name: for
    a file that has moved, and where the code is asked for."""
    trust: bool = False
    """Run the code that the run names even if it is outside the working directory, and go on even if code or
    options have changed since the training."""

    def open(self, path: Path) -> pg.Run:
        """Open a run with this much trust."""
        return pg.Run.open(path, trust=self.trust, density=self.density)


def check_notes(run: pg.Run | None) -> None:
    """Raise if the code of a run is not to be trusted. No JAX: processes have yet to join."""
    _ = run.notes if run is not None else ()


def tell_notes(run: pg.Run | None) -> None:
    """Print what to know about the code of a run, once its processes have joined."""
    for note in run.notes if run is not None and pg.devices.is_first() else ():
        print(f"pathgrad: {as_options(note)}", file=sys.stderr)
