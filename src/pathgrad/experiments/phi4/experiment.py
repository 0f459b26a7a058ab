"""Lattice phi^4 theory, as in the paper. No JAX here: the command line imports this to print help."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pathgrad as pg
from pathgrad._words.paths import expanded

from ..flows.experiment import AbstractFlowExperiment
from . import ladder, origin, words
from .options import PRESETS, Phi4Options
from .reference import COUPLINGS


class Phi4Experiment(AbstractFlowExperiment):
    """Fit a flow to lattice phi^4 theory in two dimensions, with the symmetries of the lattice built in."""

    name: ClassVar[str] = origin.NAME
    summary: ClassVar[str] = "fit a flow to lattice phi^4 theory, as in the paper"
    Options: ClassVar[type] = Phi4Options
    presets: ClassVar[Mapping[str, str]] = {
        "fast": "a free-field base and a small model, for a CPU",
        "paper": "the published model and training, meant for a day on a GPU",
        "best": "a ladder of gauss-newton runs from size 6 up to the requested size (6, 8, 12, 20 or 32), "
        "with a growing model and one directory per size; it takes only the size, the seed and the options "
        "of the run directory",
    }
    shown_options: ClassVar[tuple[str, ...]] = origin.at_any_age(
        (*AbstractFlowExperiment.shown_options, "size", "init_from")
    )
    compared_options: ClassVar[tuple[str, ...]] = origin.at_any_age(AbstractFlowExperiment.compared_options)

    def preset(self, /, **given: str) -> Phi4Options:
        """Return the options of a preset; lattice and model are those of the run to start from, if any."""
        chosen, source = PRESETS.get(given.get("preset", ""), Phi4Options()), given.get("init_from")
        if not source or given.get("preset") == "best":  # which refuses to start from another run
            return chosen
        before: Phi4Options = origin.open_source(source).settings
        begun = dataclasses.replace(before, training=chosen.training, init_from=None)
        if given.get("size") in (None, str(before.size)):
            return begun
        # The model stays as it was, but coupling and base mass belong to the lattice they were chosen for.
        flow = dataclasses.replace(before.flow, base_mass_squared=None)
        return dataclasses.replace(begun, coupling=None, flow=flow)

    def settled(self, options: Phi4Options) -> tuple[Phi4Options, list[str]]:
        """Make the path of the run to start from absolute: this run may be evaluated from elsewhere."""
        source = options.init_from and str(expanded(options.init_from).absolute())
        return dataclasses.replace(options, init_from=source), []

    def planned(self, options: Phi4Options, preset: str, out: Path) -> list[tuple[Path, Phi4Options]]:
        """Return the single run, or the runs of the ladder."""
        return ladder.planned(options, out) if preset == "best" else [(out, options)]

    def series(self, out: Path) -> list[Path]:
        """Return the directories of the ladder to the largest size."""
        return [out / f"L{size}" for size in ladder.SIZES]

    def build(self, options: Phi4Options) -> Any:
        from .problem import build

        return build(options)

    def for_costs(self, options: Phi4Options) -> Phi4Options:
        """Set some coupling where the benchmark has none: the cost does not depend on it."""
        is_known = options.coupling is not None or options.size in COUPLINGS
        return options if is_known else dataclasses.replace(options, coupling=5.0)

    def begin(self, options: Phi4Options, model: Any) -> tuple[Any, dict[str, Any]]:
        """Return the untrained flow, or the one trained by the run to start from."""
        if options.init_from is None:
            return model, {}
        from .transfer import begin

        return begin(options.init_from, model)

    def may_change(self, options: Phi4Options) -> tuple[str, ...]:
        """Return the options that may change on resuming, with `init_from` if that run was moved."""
        moved = options.init_from is not None and not Path(options.init_from).exists()
        return (*super().may_change(options), *(["init_from"] if moved else []))

    def problem(self, options: pg.OptionsTable) -> str:
        """Return the size of the lattice."""
        return f"L = {options.get('size', Phi4Options.size)}"

    def size(self, options: pg.OptionsTable) -> float:
        """Return the number of sites along an axis."""
        return pg.number_in(options, "size") or float(Phi4Options.size)

    def alike(self, options: pg.OptionsTable) -> dict[str, Any]:
        """Return the options that runs of one group share.

        Runs often start from a smaller lattice with the same seed, so those may also differ by their seed.
        """
        return self._alike(options, origin.GENERATIONS)

    def _alike(self, options: pg.OptionsTable, generations: int) -> dict[str, Any]:
        shared = super().alike(options)
        source = origin.source_of(options)
        if source is None:
            return shared | {"begun": "from scratch"}
        parent = origin.parent_of(options) if generations else None
        if parent is None:  # moved or removed: only its name is left
            return shared | {"begun": f"from {Path(source).name}"}
        del shared["init_from"]
        before = self._alike(parent.options, generations - 1)
        shared |= {origin.inherited(name): value for name, value in before.items()}
        return shared | {"begun": f"from {self.problem(parent.options)}"}

    def seconds_before(self, run: pg.Run) -> float:
        return origin.seconds_before(run)

    def doubts(self, runs: Sequence[pg.Run], seconds: float) -> list[str]:
        caveats = super().doubts(runs, seconds)
        if origin.source_of(runs[0].options) is not None:
            caveats.append("The training time of the runs they started from is not counted.")
        return caveats

    def tables(self, run: pg.Run) -> list[pg.ResultTable]:
        """Return the observables."""
        return words.tables(run)

    def warnings(self, run: pg.Run) -> list[str]:
        return [*super().warnings(run), *words.warnings(run)]

    def panels(self) -> Mapping[str, pg.Panel]:
        from .figures import PANELS

        return {"weights": super().panels()["weights"], **PANELS}


PHI4 = Phi4Experiment()
