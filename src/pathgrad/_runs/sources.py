"""Code and data that a run names in its options: where they are, and whether they are as they were.

Reading a run must not run somebody's code. So before anything of a run's code is imported, `check_sources`
settles whether its reader wants that: code below the working directory that has not changed since the run was
trained needs no question, any other does. No JAX here, and nothing is imported to find out.
"""

import dataclasses
import enum
import hashlib
import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .._words.errors import UserError, as_options, named
from .._words.paths import expanded
from .options import flat

if TYPE_CHECKING:
    from .experiment import AbstractExperiment
    from .run import Run

_SHOWN = 12  # digits of a hash in a message


class UntrustedError(UserError):
    """A run names code or data that its reader has to allow first."""


class Trust(enum.Enum):
    """What the reader of a run has allowed."""

    NEARBY = enum.auto()  # code below the working directory, if nothing has changed since training
    NAMED = enum.auto()  # code anywhere, since the reader named it, if nothing has changed
    REPLACED = enum.auto()  # code that the reader named in place of the run's, if nothing else has changed
    ALL = enum.auto()


class Source(NamedTuple):
    """A file or module outside a run that an option of the run names.

    Attributes:
        option: Flat name of the option, such as `density`.
        spec: Its value: `FILE.py:NAME` or `MODULE:NAME` for code, else the path of a file.
        is_code: Whether it is code; data are read only, and may lie anywhere.
    """

    option: str
    spec: str
    is_code: bool = True

    @property
    def name(self) -> str:
        """The name of the option on the command line."""
        return self.option.rpartition(".")[2]

    @property
    def file(self) -> Path | None:
        """The file that it is read from; `None` if there is none."""
        name = self.spec.rpartition(":")[0] if self.is_code else self.spec
        if self.is_code and not name.endswith(".py"):
            return _file_of_module(name)
        path = expanded(name).absolute()
        return path if path.is_file() else None

    @property
    def sha256(self) -> str | None:
        """The hash of its file; `None` if it cannot be read."""
        try:
            return None if self.file is None else hashlib.sha256(self.file.read_bytes()).hexdigest()
        except OSError:
            return None


def _file_of_module(name: str) -> Path | None:
    """Return the file of a module. `importlib.util.find_spec` would import its packages."""
    where: Any = [str(Path.cwd()), *sys.path]
    parts, spec = name.split("."), None
    try:
        for i in range(len(parts)):
            full = ".".join(parts[: i + 1])
            found = (finder.find_spec(full, where) for finder in sys.meta_path)
            spec = next(each for each in found if each is not None)
            where = list(spec.submodule_search_locations or ())
    except Exception:  # not found, or a finder of some package is not up to it
        return None
    return Path(spec.origin).absolute() if spec and spec.origin and spec.has_location else None


def recorded(experiment: "AbstractExperiment", options: Any) -> dict[str, Any]:
    """Return what to keep of sources and options in a checkpoint."""
    sources = {source.option: source.sha256 for source in experiment.sources(options)}
    return {"sources": sources, "options": comparable(experiment, options)}


def comparable(experiment: "AbstractExperiment", options: Any) -> dict[str, Any]:
    """Return options by flat names as JSON holds them, without where their sources are."""
    plain = flat(dataclasses.asdict(options))
    for source in experiment.sources(options):
        plain[source.option] = source.spec.rpartition(":")[2] if source.is_code else None
    return json.loads(json.dumps(plain, default=str))


def check_near(
    source: Source, told: str, folder: Path | None = None, place: str = "in the run directory itself"
) -> None:
    """Raise unless code is below the working directory, and has not come along in a `folder` below it.

    `told` names what asks for the code, and `place` that folder.
    """
    if not source.is_code:
        return
    file, here = source.file, Path.cwd().resolve()
    if file is None:
        raise UntrustedError(
            f"{told} names code that is not there or cannot be found: {source.spec}. Restore it, or say "
            f"where it is with {named(source.name)}."
        )
    is_foreign = folder is not None and not here.is_relative_to(folder.resolve())
    has_come_along = is_foreign and folder is not None and file.resolve().is_relative_to(folder.resolve())
    if file.resolve().is_relative_to(here) and not has_come_along:
        return
    where = place if has_come_along else f"outside the working directory {here}"
    raise UntrustedError(
        f"{told} names code {where}: {source.spec}. Reading a run should not run somebody's code, so nothing "
        f"was run. If you trust it, add {named('trust')}, or name it with {named(source.name)}."
    )


def named_again(experiment: "AbstractExperiment", options: Any, *, always: bool = False) -> str:
    """Return the words that name code again on the command line, if it would be asked for, or `always`."""
    words = ""
    for source in experiment.sources(options):
        try:
            check_near(source, "")
            is_asked_for = always and source.is_code
        except UntrustedError:
            is_asked_for = True
        words += as_options(f" {named(source.name)} {shlex.quote(source.spec)}") if is_asked_for else ""
    return words


def allowed_again(run: "Run") -> str:
    """Return the words that allow again what the reader of a run has allowed, where it would be asked for."""
    if run.trust is Trust.ALL:
        try:
            check_sources(dataclasses.replace(run, trust=Trust.NEARBY))
        except UserError:
            return f" {as_options(named('trust'))}"
    if run.trust in (Trust.NAMED, Trust.REPLACED):
        return named_again(run.experiment, run.settings, always=run.trust is Trust.REPLACED)
    return ""


def with_code(run: "Run", spec: str) -> "Run":
    """Return a run with other code in the option that names some; naming it is trusting it."""
    code = _first_code(run)
    if code is None:
        raise UserError(
            f"{run.path} is a run of {run.experiment.name!r}, whose options name no code: leave "
            f"{named('density')} out."
        )
    options = run.experiment.settled(_with_option(run.settings, code.option.split("."), spec))[0]
    config = run.config | {"options": dataclasses.asdict(options)}
    return dataclasses.replace(run, config=config).with_trust(Trust.REPLACED)


def _first_code(run: "Run") -> Source | None:
    return next((source for source in run.experiment.sources(run.settings) if source.is_code), None)


def _with_option(options: Any, names: list[str], value: str) -> Any:
    first, *inner = names
    new = _with_option(getattr(options, first), inner, value) if inner else value
    return dataclasses.replace(options, **{first: new})


def check_sources(run: "Run") -> list[str]:
    """Raise if a run asks for code that its reader has not allowed; return what the reader should know."""
    sources = run.experiment.sources(run.settings)
    replaced = _first_code(run) if run.trust is Trust.REPLACED else None
    if run.trust in (Trust.NEARBY, Trust.REPLACED):
        for source in sources:
            if source != replaced:
                check_near(source, str(run.path), run.path)
    then = run.recorded
    differing = {source.option: _difference(run, source, then.get("sources")) for source in sources}
    noted = [text for option, text in differing.items() if text and replaced and option == replaced.option]
    refused = [text for text in differing.values() if text and text not in noted]
    edited = _edited(run, then)
    told = f"The options of {run.path} are no longer those of its training"
    if replaced and (text := edited.pop(replaced.option, None)):
        noted.append(f"{told}: {text}")
    if edited:
        refused.append(f"{told}: {', '.join(edited.values())}")
    if refused and run.trust is not Trust.ALL:
        raise UntrustedError(f"{refused[0]}. Restore it, or go on all the same with {named('trust')}.")
    notes = [f"{text}." for text in noted + refused]
    if then.get("before"):
        notes.append(f"{run.path} was resumed with other code or data than it began with.")
    if sources and run.has_checkpoints and not isinstance(then.get("sources"), dict):
        names = " and ".join(source.spec for source in sources)
        notes.append(
            f"{run.path} was trained by an older pathgrad, which did not record the source of what it fits: "
            f"whether {names} has changed since is unknown."
        )
    return notes


def _difference(run: "Run", source: Source, then: Any) -> str | None:
    before = then.get(source.option) if isinstance(then, dict) else None
    now = source.sha256
    if before is None or now == before:
        return None
    if now is None:
        return f"{source.spec}, on which {run.path} was trained, is not there or cannot be read"
    return (
        f"{source.spec} has changed since {run.path} was trained (SHA-256 {str(before)[:_SHOWN]}... then, "
        f"{now[:_SHOWN]}... now), so its results would be those of something else"
    )


def _edited(run: "Run", then: Mapping[str, Any]) -> dict[str, str]:
    """Return what differs in options from those of the training; those of its length may change."""
    now, free = comparable(run.experiment, run.settings), run.experiment.may_change(run.settings)
    known = [then[name] for name in ("options", "concluded") if isinstance(then.get(name), dict)]
    # Options that only one of two versions of pathgrad has are not compared.
    differing = [
        (name, [options[name] for options in known if name in options], value)
        for name, value in now.items()
        if name not in free
    ]
    return {
        name: f"{named(name.rpartition('.')[2])} is {value}, trained with {before[0]}"
        for name, before, value in differing
        if before and value not in before
    }
