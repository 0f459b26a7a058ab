"""What runs say of themselves, and which of them belong together. No JAX here, and no NumPy."""

import dataclasses
import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pathgrad._errors import UserError
from pathgrad._train.row import Number, Row, best_row, is_number
from pathgrad._train.rundir import RunDir

# What only one optimiser uses says nothing about another.
OWN = {
    f"training.{name}"
    for name in ("batch", "learning_rate", "beta1", "beta2", "decay", "clip", "average", "block")
} | {"training.draws_per_parameter"}
# Options that older versions did not write, and what those did.
_SINCE = {"training.newton_steps": 0, "training.average": None}
_EVALUATED = ("ess", "kl", "khat")
_EVALUATED_VAE = ("negative_elbo", "nll", "images", "nll_images", "nll_samples")
_MOST_WORDS = 3  # options in a label; where more differ, the directory says it better


@dataclasses.dataclass(frozen=True)
class Summary:
    """One run.

    Attributes:
        path: Its directory.
        config: As in `config.toml`.
        rows: Of its metrics.
        numbers: Its last row, the time of a step, and what evaluation found if that is of the same step.
        evaluated: Whether it is.
        warnings: Of the evaluation.
    """

    path: Path
    config: dict[str, Any]
    rows: list[Row]
    numbers: dict[str, Number | None]
    evaluated: bool
    warnings: tuple[str, ...] = ()

    @property
    def training(self) -> dict[str, Any]:
        """Options of the training."""
        return self.config.get("options", {}).get("training", {})

    @property
    def estimator(self) -> str:
        """The gradient that was followed, or the optimiser that follows none."""
        followed = self.training.get("estimator", "?")
        # All optimisers of autoencoders follow a gradient.
        if self.optimizer != "adam" and not self.dataset:
            return self.optimizer
        return f"{followed}-gauss-newton" if self.training.get("newton_steps") else followed

    @property
    def optimizer(self) -> str:
        """Its name; runs of before there was a choice are Adam's."""
        return self.training.get("optimizer", "adam")

    @property
    def size(self) -> int | None:
        """Sites along an axis of the lattice, where there is one."""
        lattice = self.config.get("experiment") == "phi4"
        return self.config.get("options", {}).get("size") if lattice else None

    @property
    def dataset(self) -> str | None:
        """The images of a variational autoencoder, where it is one."""
        if self.config.get("experiment") != "vae":
            return None
        return str(self.config.get("options", {}).get("dataset", "?"))

    @property
    def problem(self) -> str:
        """What was fitted, in a word: runs of different problems are not drawn into one panel."""
        options = self.config.get("options", {})
        if self.dataset:
            return self.dataset
        if self.size:
            return f"L = {self.size}"
        dim = f" in {options['dim']} dimensions" if options.get("dim", 2) != 2 else ""
        return f"{options.get('target', '')}{dim}"

    @functools.cached_property
    def seconds_before(self) -> float:
        """Training time of the runs that this one began with, as far as they are still there."""
        source = self.config.get("options", {}).get("init_from")
        try:
            parent = summarise(Path(source)) if source else None
        except UserError:
            return float(self.config.get("provenance", {}).get("init_from_seconds", 0.0))
        return parent.seconds_before + (parent.numbers.get("seconds") or 0.0) if parent else 0.0

    @functools.cached_property
    def alike(self) -> dict[str, Any]:
        """All options but the seed, without nesting."""
        return _alike(self.config)

    @functools.cached_property
    def group(self) -> str:
        """Equal for runs that differ by their seed only."""
        return json.dumps(self.alike, sort_keys=True, default=str)


def read_runs(paths: tuple[Path, ...]) -> list[Summary]:
    """Read runs, each once, even if it is named twice."""
    if not paths:
        raise UserError("name at least one run directory.")
    summaries = [summarise(path) for path in {path.resolve(): path for path in paths}.values()]
    images = [s for s in summaries if s.dataset]
    others = [s for s in summaries if not s.dataset]
    if images and others:
        raise UserError(
            f"{images[0].path} is a variational autoencoder and {others[0].path} is not: they have no "
            "number in common. Name runs of one kind."
        )
    return summaries


def summarise(path: Path) -> Summary:
    """Read one run."""
    found = RunDir.open(path)
    rows = found.read_metrics()
    numbers = numbers_of(rows)
    report = read_evaluation(path) or {}
    # An evaluation of an earlier step says nothing about a run that has gone on.
    current = {numbers.get("step")}
    autoencoder = found.config.get("experiment") == "vae"
    if autoencoder:
        best, more = _numbers_of_autoencoder(rows)
        numbers |= more
        current |= {best}  # of those, the best epoch is what is kept
    evaluated = "step" in report and report["step"] in current
    warnings: tuple[str, ...] = ()
    if evaluated:
        names = _EVALUATED_VAE if autoencoder else _EVALUATED
        numbers |= {name: v if is_number(v := report.get(name)) else None for name in names}
        warnings = tuple(map(str, report.get("warnings") or ()))
    return Summary(path, found.config, rows, numbers, evaluated, warnings)


def numbers_of(rows: Sequence[Row]) -> dict[str, Number | None]:
    """Return what is known at the end of a training, and what a step of it took."""
    if not rows:
        return {}
    last = rows[-1]
    known: dict[str, Number | None] = {name: last.value(name) for name in last.to_json()}
    seconds = last.value("seconds")
    cost = 1000 * seconds / last.step if last.step and seconds is not None else None
    return known | {"step_ms": cost}


def _numbers_of_autoencoder(rows: Sequence[Row]) -> tuple[int | None, dict[str, Number | None]]:
    """Return the step of the best validation, and what is told of the training as a whole."""
    numbers: dict[str, Number | None] = {}
    for name in ("evaluations", "evaluations_backward"):
        total, steps, before = 0.0, 0, 0
        for row in rows:
            block, before = row.step - before, row.step
            if (value := row.value(name)) is not None:
                total, steps = total + block * value, steps + block
        numbers[name] = total / steps if steps else None
    best = best_row(rows)
    if best is None:
        return None, numbers | {"best_validation": None, "best_epoch": None}
    reached = {"best_validation": best.validation, "best_epoch": best.value("epoch")}
    return best.step, numbers | reached


def read_evaluation(path: Path) -> dict[str, Any] | None:
    """Return evaluation.json of a run, `None` if it has not been evaluated."""
    file = path / "evaluation.json"
    if not file.is_file():
        return None
    try:
        return dict(json.loads(file.read_text()))
    except (OSError, TypeError, ValueError) as error:
        raise UserError(f"{file} cannot be read ({error}): pathgrad evaluate {path}") from error


def _alike(config: dict[str, Any], generations: int = 9) -> dict[str, Any]:
    flat = {"experiment": config.get("experiment"), **_flat(config.get("options", {}))}
    flat.pop("training.seed", None)
    flat = {name: value for name, value in flat.items() if value != _SINCE.get(name, _SINCE)}
    if flat["experiment"] == "vae":
        flat.pop("data", None)  # where the images are kept is not what they are
        flat.pop("training.epochs", None)  # an upper bound, and resumed runs get a new one
    if flat.get("init_from") and generations:
        # Seeds often begin each with its own smaller lattice: those may differ by their seed too.
        try:
            parent = RunDir.open(flat["init_from"]).config
        except UserError:
            return flat  # moved or removed: then its name has to do
        flat["init_from"] = _alike(parent, generations - 1)
    return flat


def _flat(options: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in options.items():
        nested = isinstance(value, dict)
        flat |= _flat(value, f"{prefix}{name}.") if nested else {prefix + name: value}
    return flat


def grouped(summaries: list[Summary]) -> list[list[Summary]]:
    """Return the runs in groups that differ by their seed only; small lattices first."""
    groups: dict[str, list[Summary]] = {}
    for s in summaries:
        groups.setdefault(s.group, []).append(s)
    return sorted(groups.values(), key=lambda group: group[0].size or 0)


def names_of(summaries: list[Summary]) -> list[str]:
    """Return the ends of the paths, as long as it takes to tell them apart."""
    parts = [s.path.resolve().parts for s in summaries]
    for length in range(1, max(map(len, parts), default=0) + 1):
        names = ["/".join(p[-length:]) for p in parts]
        if len(set(names)) == len(names):
            return names
    return [str(s.path) for s in summaries]


def labels_of(summaries: list[Summary]) -> dict[str, str]:
    """Return for each group its estimator, and what tells it from the other groups of its problem."""
    groups = grouped(summaries)
    firsts = [group[0] for group in groups]
    names = [
        # The name of one run is not that of its group.
        f"{name} and {len(group) - 1} more" if len(group) > 1 else name
        for name, group in zip(names_of(firsts), groups, strict=True)
    ]
    said = {"training.estimator", "training.newton_steps", "size"}
    # The estimator says it of others: there, an optimiser is Adam or stands in the estimator's place.
    said |= set() if any(s.dataset for s in firsts) else {"training.optimizer"}
    every = sorted({n for s in firsts for n in s.alike} - said)
    telling = [n for n in every if _differs_within_a_problem(firsts, n)]
    labels = {}
    for name, s in zip(names, firsts, strict=True):
        words = [_word(n, s) for n in telling] if len(telling) <= _MOST_WORDS else [name]
        labels[s.group] = ", ".join([s.estimator, *words])
    return labels


def plain_labels(summaries: list[Summary]) -> dict[str, str] | None:
    """Return for each group its estimator, and whether it began with another run, if that tells all apart."""
    labels, seen = {}, set()
    for group in grouped(summaries):
        s = group[0]
        begun = s.config.get("options", {}).get("init_from")
        labels[s.group] = s.estimator + (", from a smaller lattice" if begun else "")
        if (s.problem, labels[s.group]) in seen:
            return None
        seen.add((s.problem, labels[s.group]))
    return labels


def _differs_within_a_problem(firsts: list[Summary], name: str) -> bool:
    """Say whether an option has several values for one problem (between problems, many must differ)."""
    values: dict[Any, set[str]] = {}
    for s in firsts:
        key = (s.problem, s.optimizer if name in OWN else "")
        values.setdefault(key, set()).add(str(s.alike.get(name)))
    return any(len(found) > 1 for found in values.values())


def _word(name: str, s: Summary) -> str:
    if name in _SINCE and name not in s.alike:
        return f"no {name.rpartition('.')[2].replace('_', ' ')}"
    value = s.alike.get(name, "by default")
    if name == "init_from" and value is None:
        return "from nothing"
    if name == "training.optimizer":
        return str(value)
    if isinstance(value, dict):  # of the run it began with
        value = Path(s.config["options"]["init_from"]).name
    return f"{name.rpartition('.')[2].replace('_', ' ')} {value}"
