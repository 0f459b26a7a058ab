"""Reading options: from the command line, over a preset, a configuration file, or the run to resume."""

import contextlib
import dataclasses
import io
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import tyro

from pathgrad._errors import UserError
from pathgrad._train.rundir import RunDir
from pathgrad.experiments import registry

from .processes import Processes

T = TypeVar("T")

# What may differ when a run goes on: how long it goes on.
_MAY_CHANGE = ("max_seconds", "epochs", "patience", "data")


@dataclasses.dataclass(frozen=True)
class Where:
    """The run directory, and who trains in it."""

    out: Path | None = None
    """Directory of the run. By default one in runs/, named after experiment, method and seed."""
    resume: bool = False
    """Go on with the run in --out from its last checkpoint, to the same bits as without the break (on as many
    devices). Its options are those of the run; --steps (with stages --newton-steps; --epochs, --patience) and
    --max-seconds may be given anew (a decaying learning rate then follows the new number of steps)."""
    overwrite: bool = False
    """Replace the run in --out. Without this, nothing that exists is touched."""
    checkpoint_seconds: float = 10.0
    """A killed run loses at most this much work, and the block at hand."""
    together: Processes = Processes()


def parse(kind: type[T], prog: str, words: list[str], default: Any = None) -> T:
    """Read options with tyro; bad ones become one line, with its hint."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(
                kind,
                prog=prog,
                args=words,
                default=tyro.MISSING_NONPROP if default is None else default,
                config=(tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff),
            )
    except SystemExit as stop:
        if not stop.code:
            raise
        raise UserError(_one_line(said.getvalue(), prog)) from None


def _one_line(box: str, prog: str) -> str:
    """Take tyro's message out of its box."""
    words = re.sub(r"[─│╭╮╰╯]+", " ", box.partition("For full helptext")[0]).split()
    # The headline of the box, such as "Parsing error", says no more than that something is wrong.
    text = re.sub(
        r"^(Parsing error|Invalid choice|Value error|Required options) ", "", " ".join(words)
    )
    return f"{text} ({prog} --help explains the options.)"


def peek(words: list[str], name: str) -> str | None:
    """Return the value of an option before the real parsing, `None` if it is not there."""
    found = None
    for i, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option.replace("_", "-") != name:
            continue
        if equals:
            found = value
        elif i + 1 < len(words):
            found = words[i + 1]
    return found


def for_optimizer(words: list[str], options: Any) -> Any:
    """Return the options with the training's defaults for the optimiser that is asked for."""
    training = options.training.with_optimizer(peek(words, "--optimizer"))
    return dataclasses.replace(options, training=training)


def stored_options(words: list[str], experiment: str) -> Any | None:
    """Return the options of the run to resume or of `--config FILE`, if either is asked for."""
    config = peek(words, "--config")
    if "--resume" in words:
        out = peek(words, "--out")
        if out is None:
            raise UserError("--resume needs --out, the directory of the run to go on with.")
        return same_experiment(RunDir.open(out).config, out, experiment)
    if config is not None:
        try:
            contents = tomllib.loads(Path(config).read_text())
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise UserError(f"--config {config} cannot be read: {error}") from error
        return same_experiment(contents, config, experiment)
    return None


def same_experiment(config: Mapping[str, Any], where: str, experiment: str) -> Any:
    """Return the options in the contents of a `config.toml`, which must be of the given experiment."""
    name, options = registry.read_options(dict(config), where)
    if name != experiment:
        raise UserError(f"{where} is of the experiment {name!r}, not {experiment!r}.")
    return options


def check_resumed(stored: Any, given: Any) -> None:
    """Raise unless the given options differ from the stored ones in length of training only."""
    before, after = _flat(dataclasses.asdict(stored)), _flat(dataclasses.asdict(given))
    # The steps of a stage that another follows say where that one begins.
    ends = "newton_steps" if before.get("newton_steps") else "steps"
    free = [n for n in (ends, *_MAY_CHANGE) if n in before]
    lengths = [f"--{n.replace('_', '-')}" for n in free]
    changed = [n for n in before if before[n] != after[n] and n not in free]
    if changed:
        told = ", ".join(f"--{n.replace('_', '-')} {before[n]} -> {after[n]}" for n in changed)
        raise UserError(
            f"A resumed run keeps its configuration, only {' and '.join(lengths)} may change; got {told}. "
            "Leave these options out, or begin a new run with another --out."
        )


def _flat(mapping: dict[str, Any]) -> dict[str, Any]:
    flat = {}
    for name, value in mapping.items():
        flat.update(_flat(value) if isinstance(value, dict) else {name: value})
    return flat
