"""The runs that a run began with: a smaller lattice, which may have begun with a smaller one. No JAX here."""

from pathlib import Path

import pathgrad as pg

GENERATIONS = 9  # whose options count; beyond, names have to do
NAME = "phi4"


def open_source(source: str) -> pg.Run:
    """Open the run to begin with, which must be one of a lattice."""
    run = pg.Run.open(Path(source).expanduser())
    if run.experiment.name != NAME:
        raise pg.ArgumentError(
            f"{pg.named('init_from')} {source} is a run of {run.experiment.name!r}, not of {NAME}."
        )
    return run


def source_of(options: pg.OptionsTable) -> str | None:
    """Return the directory that a run began with, if it did."""
    source = options.get("init_from")
    return source if isinstance(source, str) else None


def parent_of(options: pg.OptionsTable) -> pg.Run | None:
    """Return the run that a run began with; `None` if there was none, or it is gone."""
    source = source_of(options)
    try:
        return None if source is None else open_source(source)
    except pg.UserError:
        return None


def seconds_before(run: pg.Run) -> float:
    """Return the training time of all runs that a run began with, as far as it is known."""
    seen, total = {run.path.resolve()}, 0.0  # a run may have replaced the one that it began with
    while (parent := parent_of(run.options)) is not None and parent.path.resolve() not in seen:
        seen.add(parent.path.resolve())
        total += parent.at_end("seconds") or 0.0
        run = parent
    # The first of those that are gone is remembered by the run that began with it.
    return total + (pg.number_in(run.provenance, "init_from_seconds") or 0.0)


def inherited(name: str) -> str:
    """Return by what name an option of the parent stands among those of a run, laid flat.

    Labels show the last part of it, which must not be taken for the run's own option.
    """
    return f"init_from.{name}" if name.startswith("init_from.") else f"init_from.{name}_before"


def at_any_age(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return names of options together with those of the same options of all ancestors."""
    ages = range(GENERATIONS + 1)
    return tuple(f"{'init_from.' * age}{name}{'_before' if age else ''}" for age in ages for name in names)
