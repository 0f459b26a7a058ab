"""`pathgrad bench cnf`, `bench phi4`, `bench vae` and `bench all`."""

import dataclasses
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from pathgrad._bench.options import (
    CnfOptions,
    ImagesOptions,
    LatticeOptions,
    images_preset,
    lattice_preset,
)
from pathgrad._bench.studies import STUDIES
from pathgrad._errors import UserError

from .arguments import parse, peek

StudyName = Literal[
    "dimension",
    "steps",
    "batch",
    "choices",
    "volume",
    "published",
    "field",
    "images",
    "rivals",
]


@dataclasses.dataclass(frozen=True)
class Cnf:
    """Measure one training gradient of a continuous flow with a perceptron as its field.

    Time (interleaved repetitions, warm), FLOPs, temporary memory and compiling, by estimator. The target is
    a standard normal, which costs next to nothing: what is measured is the flow.
    """

    cnf: CnfOptions = CnfOptions()
    json: bool = False
    """Print one JSON object instead of a table. (What goes on is told on stderr.)"""


@dataclasses.dataclass(frozen=True)
class Lattice:
    """Measure one training gradient of an untrained flow for lattice phi^4 theory.

    Time (interleaved repetitions, warm), FLOPs, temporary memory and compiling, by estimator. Any --size
    will do: the cost does not depend on the coupling.
    """

    lattice: LatticeOptions = LatticeOptions()
    preset: Literal["fast", "paper"] = "fast"
    """Where the model's defaults come from: fast (for a CPU), or paper (the published model, 50 steps,
    backsolve)."""
    rivals: bool = False
    """Measure the same model in other packages too, those of bijx and flowjax that are installed. The base is
    then the unit normal, and the divergence closed, as there."""
    json: bool = False
    """Print one JSON object instead of a table. (What goes on is told on stderr.)"""


@dataclasses.dataclass(frozen=True)
class Images:
    """Measure one training step of a variational autoencoder, and the gradient of its flow alone.

    Time (interleaved repetitions, warm), FLOPs, temporary memory and compiling, by estimator; of adaptive
    solvers also field evaluations, there and back. On random images: no data is needed.
    """

    images: ImagesOptions = ImagesOptions()
    preset: Literal["small", "paper"] = "small"
    """Where the model's defaults come from: small (for a CPU), or paper (the published one of --dataset)."""
    json: bool = False
    """Print one JSON object instead of a table. (What goes on is told on stderr.)"""


@dataclasses.dataclass(frozen=True)
class All:
    """Measure everything: growth with dimension, steps, batch and volume, every divergence and adjoint, the
    published lattice model, autoencoders.

    Writes STUDY.json and STUDY.png of each study when it is done, and bench.md with all tables. After an
    interruption, the same command goes on with the studies that are missing. About twenty minutes on two
    idle CPU cores; leave the machine alone meanwhile.
    """

    out: Path
    """Folder for the results."""
    only: tuple[StudyName, ...] = ()
    """Do only these studies. By default all; rivals only with --rivals."""
    quick: bool = False
    """Small sizes, a few minutes: to see that it works, not to be quoted."""
    rivals: bool = False
    """Also measure the lattice gradient in those of bijx and flowjax that are installed."""
    overwrite: bool = False
    """Measure again what is there. Without this, it is kept."""


def run(prog: str, words: list[str]) -> int:
    """Measure what the last word of the command says."""
    return {"cnf": _cnf, "phi4": _lattice, "vae": _images, "all": _all}[prog.split()[-1]](
        prog, words
    )


def _cnf(prog: str, words: list[str]) -> int:
    given = parse(Cnf, prog, words)
    from pathgrad._bench.gradients import measure_cnf

    return _tell(measure_cnf(given.cnf, _progress()), as_json=given.json)


def _lattice(prog: str, words: list[str]) -> int:
    preset = peek(words, "--preset") or "fast"
    default = lattice_preset(preset) if preset in ("fast", "paper") else LatticeOptions()
    given = parse(Lattice, prog, words, Lattice(default))
    if given.rivals:
        from pathgrad._bench.rivals import check_installed, measure_rivals

        check_installed()
        return _tell(measure_rivals(given.lattice, _progress()), as_json=given.json)
    from pathgrad._bench.gradients import measure_lattice

    return _tell(measure_lattice(given.lattice, _progress()), as_json=given.json)


def _images(prog: str, words: list[str]) -> int:
    dataset = peek(words, "--dataset") or ImagesOptions().dataset
    default = images_preset(peek(words, "--preset") or "small", dataset)
    given = parse(Images, prog, words, Images(default))
    from pathgrad._bench.images import measure_images

    return _tell(measure_images(given.images, _progress()), as_json=given.json)


def _progress() -> Callable[[str], None]:
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {text}", file=sys.stderr, flush=True)

    return say


def _tell(record: dict[str, Any], *, as_json: bool) -> int:
    """Print a record: as one JSON object and nothing else, or as a table."""
    from pathgrad._bench.tables import HEAD, cost_rows, ratio_lines
    from pathgrad._train.rundir import provenance

    if as_json:
        print(json.dumps(record | {"provenance": provenance()}, indent=2, allow_nan=False))
        return 0
    from rich.console import Console
    from rich.table import Table

    nested = ("estimators", "ratios", "flow_alone")
    about = [f"{k.replace('_', ' ')} {v}" for k, v in record.items() if k not in nested]
    print(", ".join(about[1:]))
    parts = {"": record}
    if "flow_alone" in record:
        parts = {"whole step": record, "flow alone": record["flow_alone"]}
    width = None if sys.stdout.isatty() else 400
    for title, part in parts.items():
        table = Table(HEAD[0], title=title or None, title_justify="left")
        for name in HEAD[1:]:
            table.add_column(name, justify="right")
        for row in cost_rows(part):
            table.add_row(*row)
        Console(width=width, markup=False, highlight=False).print(table)
        print("\n".join(ratio_lines(part)))
    return 0


def _all(prog: str, words: list[str]) -> int:
    given = parse(All, prog, words)
    names = [n for n in STUDIES if n in (given.only or STUDIES) and (n != "rivals" or given.rivals)]
    if "rivals" in given.only and not given.rivals:
        raise UserError("--only rivals needs --rivals.")
    if "rivals" in names:
        from pathgrad._bench.rivals import check_installed

        check_installed()
    try:
        given.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {given.out} cannot be made: {error.strerror}.") from error
    # All of them first, so that nothing is measured in vain.
    kept = {} if given.overwrite else {n: s for n in names if (s := _read(given, n)) is not None}
    say = _progress()
    for name in names:
        if name in kept:
            say(f"{name}: kept, --overwrite measures it again")
        else:
            _write(given.out, name, _measured(name, given, say))
    _write_tables(given.out)
    print(f"results: {given.out / 'bench.md'}")
    return 0


def _measured(name: str, given: All, say: Callable[[str], None]) -> dict[str, Any]:
    from pathgrad._bench.studies import run_study
    from pathgrad._train.rundir import provenance

    return run_study(name, quick=given.quick, say=say) | {"provenance": provenance()}


def _read(given: All, name: str) -> dict[str, Any] | None:
    file = given.out / f"{name}.json"
    if not file.exists():
        return None
    study = _load(file)
    if study["quick"] != given.quick:
        kind = "--quick" if study["quick"] else "whole"
        raise UserError(
            f"{file} is of a {kind} run: take another --out, or --overwrite to measure it again."
        )
    return study


def _load(file: Path) -> dict[str, Any]:
    try:
        study = json.loads(file.read_text())
        if study["study"] != file.stem:
            raise ValueError(f"it is the study {study['study']!r}")
        return study
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{file} cannot be read as a result of `bench all` ({error}): --overwrite measures it again."
        ) from error


def _write(out: Path, name: str, study: dict[str, Any]) -> None:
    from pathgrad import _plots
    from pathgrad._train.files import write_atomically

    text = json.dumps(study, indent=1, allow_nan=False) + "\n"
    try:
        write_atomically(out / f"{name}.json", [text.encode()])
        _plots.plot_costs(study, out / f"{name}.png")
    except OSError as error:
        raise UserError(f"{out} cannot be written to: {error.strerror}.") from error


def _write_tables(out: Path) -> None:
    from pathgrad._bench.tables import markdown

    studies = {n: _load(out / f"{n}.json") for n in STUDIES if (out / f"{n}.json").exists()}
    (out / "bench.md").write_text(markdown(studies))
