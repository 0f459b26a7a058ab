"""The ancestors of a run: it may start from a smaller lattice, which started from another. No JAX here."""

import pathgrad as pg
from pathgrad._words.paths import expanded

GENERATIONS = 9  # ancestors whose options are compared; for older ones, only their names
NAME = "phi4"


def open_source(source: str) -> pg.Run:
    """Open the run to start from, which must be a lattice run."""
    run = pg.Run.open(expanded(source))
    if run.experiment.name != NAME:
        raise pg.ArgumentError(
            f"{pg.named('init_from')} {source} must be a run of {NAME}, not of {run.experiment.name!r}."
        )
    return run


def source_of(options: pg.OptionsTable) -> str | None:
    """Return the directory of the run that a run started from, if any."""
    source = options.get("init_from")
    return source if isinstance(source, str) else None


def parent_of(options: pg.OptionsTable) -> pg.Run | None:
    """Return the run that a run started from; `None` if there was none, or it is gone."""
    source = source_of(options)
    try:
        return None if source is None else open_source(source)
    except pg.UserError:
        return None


def seconds_before(run: pg.Run) -> float:
    """Return the training time of all ancestors of a run, as far as it is known."""
    seen, total = {run.path.resolve()}, 0.0  # a run may have replaced the one that it started from
    while (parent := parent_of(run.options)) is not None and parent.path.resolve() not in seen:
        seen.add(parent.path.resolve())
        total += parent.at_end("seconds") or 0.0
        run = parent
    # The first ancestor that is gone is recorded in the run that started from it.
    return total + (pg.number_in(run.provenance, "init_from_seconds") or 0.0)


def inherited(name: str) -> str:
    """Return the name of a parent's option among the flattened options of a run.

    Labels show its last part, which must not be mistaken for the run's own option.
    """
    return f"init_from.{name}" if name.startswith("init_from.") else f"init_from.{name}_before"


def at_any_age(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return names of options, together with the names of the same options of all ancestors."""
    ages = range(GENERATIONS + 1)
    return tuple(f"{'init_from.' * age}{name}{'_before' if age else ''}" for age in ages for name in names)
