"""Read options from the command line; defaults come from an experiment, a file, or the run to resume."""

import contextlib
import dataclasses
import io
import itertools
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, TypeVar

import tyro

import pathgrad as pg
from pathgrad._words.errors import UserError, named

from .failures import HelpShown

T = TypeVar("T")


def parse(kind: type[T], prog: str, words: list[str], default: T | None = None) -> T:
    """Read options with tyro; turn its errors into one line, with its hint."""
    stderr = io.StringIO()
    try:
        with contextlib.redirect_stderr(stderr):
            return tyro.cli(
                kind,
                prog=prog,
                args=words,
                default=tyro.MISSING_NONPROP if default is None else default,
                config=(tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff),
            )
    except SystemExit as stop:
        if not stop.code:
            raise HelpShown(0) from None
        raise UserError(_one_line(stderr.getvalue(), prog)) from None


# How Python says that a word is not of a kind.
_KINDS = {
    r"\{None\}\|INT could be instantiated from \[('.*?')\]": "a whole number",
    r"\{None\}\|FLOAT could be instantiated from \[('.*?')\]": "a number",
    r"invalid literal for int\(\) with base 10: ('.*?')": "a whole number",
    r"could not convert string to float: ('.*?')": "a number",
}


def _one_line(box: str, prog: str) -> str:
    """Take tyro's message out of its box."""
    text = " ".join(re.sub(r"[─│╭╮╰╯]+", " ", box.partition("For full helptext")[0]).split())
    # The headline of the box, such as "Parsing error", adds nothing to the message in it.
    heads = "Parsing error|Invalid choice|Value error|Missing argument|(Required|Unrecognized) options"
    text = re.sub(rf"^({heads}) ", "", text)
    for pattern, kind in _KINDS.items():
        text = re.sub(rf"Error parsing (--[\w-]+): .*?{pattern}.*", rf"\1 must be {kind}, got \2.", text)
    text = re.sub(r" Argument helptext: .*", "", text)
    return f"{text} ({prog} --help explains the options.)"


def option_fields(experiment: pg.AbstractExperiment) -> list[Any]:
    """Return an experiment's fields for the dataclass of a command: its options, and their preset."""
    name = experiment.name.replace("-", "_")  # the heading of its options in the help
    fields: list[Any] = [(name, experiment.Options)]
    if experiment.presets:
        names = tuple(experiment.presets)
        texts = [f"{name} ({text})" for name, text in experiment.presets.items()]
        help_text = tyro.conf.arg(help=f"Which set of defaults to use: {' or '.join(texts)}.")
        fields.append(("preset", Annotated[Literal[names], help_text], names[0]))  # pyright: ignore
    return fields


def with_first_word(experiment: pg.AbstractExperiment, kind: type, words: list[str]) -> list[str]:
    """Add the name of the option that may be given without it."""
    if experiment.first_word is None:
        return words
    for i in bare_words(words, flags_of(kind)):
        return [*words[:i], option(experiment.first_word), *words[i:]]
    return words


def given_words(words: list[str]) -> dict[str, str]:
    """Return the values of options, by their Python names, before the real parsing."""
    values = {}
    for word, after in itertools.pairwise([*words, ""]):
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            values[name.replace("-", "_")] = value if equals else after
    return values


def check_used(given: Iterable[str], unused: Mapping[str, str]) -> None:
    """Raise a `UserError` if an option is given that would be ignored; `unused` says why."""
    for name in given:
        if name in unused:
            raise UserError(f"{named(name)} would have no effect: {unused[name]}. Leave it out.")


def bare_words(words: list[str], flags: set[str]) -> list[int]:
    """Return the positions of words that are neither options nor their values; `flags` take no value."""
    positions = []
    for i, word in enumerate(words):
        before = words[i - 1] if i else ""
        takes = before.startswith("--") and "=" not in before
        if not word.startswith("-") and not (takes and before[2:].replace("-", "_") not in flags):
            positions.append(i)
    return positions


def flags_of(kind: type) -> set[str]:
    """Return the options of nested dataclasses that take no value."""
    flags = set()
    for field in dataclasses.fields(kind):
        if dataclasses.is_dataclass(field.type):
            flags |= flags_of(field.type)  # pyright: ignore[reportArgumentType]
        elif field.type is bool or field.type == "bool":
            flags.add(field.name)
    return flags


def option(name: str) -> str:
    """Return an option as it is typed, given its flat name, such as `training.max_seconds`."""
    return f"--{name.rpartition('.')[2].replace('_', '-')}"
