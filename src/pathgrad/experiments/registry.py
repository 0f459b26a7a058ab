"""Which experiments there are, by the name that a run directory keeps."""

import dataclasses
import shlex
from pathlib import Path
from types import ModuleType
from typing import Any

from pathgrad._errors import ArgumentError, UserError, named

from . import custom, toy
from .options import from_mapping
from .phi4 import options as phi4
from .vae import options as vae

EXPERIMENTS: dict[str, tuple[ModuleType, type]] = {
    "toy": (toy, toy.ToyOptions),
    "phi4": (phi4, phi4.Phi4Options),
    "vae": (vae, vae.AutoencoderOptions),
    "fit": (custom, custom.CustomOptions),
}


# How each is trained from the command line.
COMMANDS = {"toy": "train toy", "phi4": "train phi4", "vae": "train vae", "fit": "fit"}


def resume_command(experiment: str, out: Path) -> str:
    """Return the command that goes on with a run, its arguments marked by `named`."""
    command = COMMANDS.get(experiment, "train")
    return f"pathgrad {command} {named('out')} {shlex.quote(str(out))} {named('resume')}"


def read_options(config: dict[str, Any], where: str) -> tuple[str, Any]:
    """Return the experiment's name and options from the contents of a `config.toml`."""
    name = config.get("experiment")
    if not isinstance(name, str) or name not in EXPERIMENTS:
        raise UserError(
            f"{where} names the experiment {name!r}; this version knows {', '.join(EXPERIMENTS)}."
        )
    options = config.get("options", {})
    if not isinstance(options, dict):
        raise UserError(f"{where}: `options` must be a table, got {options!r}.")
    return name, from_mapping(EXPERIMENTS[name][1], options, where)


def write_options(name: str, options: Any) -> dict[str, Any]:
    """Return what `read_options` reads."""
    return {"experiment": name, "options": dataclasses.asdict(options)}


def build(name: str, options: Any) -> Any:
    """Return the `Problem` of an experiment; bad values become a `UserError`."""
    try:
        return EXPERIMENTS[name][0].build(options)
    except ArgumentError:  # which it is already, with its arguments marked
        raise
    except ValueError as error:
        raise UserError(str(error)) from error
