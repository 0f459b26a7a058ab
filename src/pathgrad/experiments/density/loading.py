"""A user's own log density, named as MODULE:FUNCTION or FILE.py:FUNCTION."""

import importlib
import importlib.machinery
import importlib.util
import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from jaxtyping import Array

import pathgrad as pg
from pathgrad._words.paths import check_unicode, expanded
from pathgrad._words.text import first_line


def load_density(spec: str) -> Callable[..., Array]:
    """Import the function that `MODULE:FUNCTION` or `FILE.py:FUNCTION` names."""
    module, name = _module_and_name(spec)
    density = getattr(module, name, None)
    if not callable(density):
        raise _missing(module, spec)
    return density  # pyright: ignore[reportReturnType]


def load_target(spec: str, dim: int | None) -> pg.Target:
    """Import a target: a function of one point, or an object that has `log_prob` and says its `shape`.

    Args:
        spec: `MODULE:NAME` or `FILE.py:NAME`.
        dim: The number of coordinates of a point; `None` if the object says it.
    """
    module, name = _module_and_name(spec)
    found: Any = getattr(module, name, None)
    shape = getattr(found, "shape", None)
    if hasattr(found, "log_prob") and not isinstance(found, type):
        if isinstance(shape, tuple):
            return _agreeing(found, shape, dim, spec)
        found = found.log_prob
    density: Any = found
    if not callable(density):
        raise _missing(module, spec)
    if dim is None or dim < 1:
        raise pg.ArgumentError(
            f"{pg.named('dim')}, the number of coordinates of a point, must be given, since {spec} does not "
            f"say it: at least 1, got {dim}."
        )
    return checked(density, dim, spec)


def checked(density: Callable[..., Any], dim: int, spec: str) -> pg.LogDensity:
    """Return a function as a target; report in one line if it does not return a number."""
    try:
        return pg.LogDensity(density, (dim,))
    except pg.UserError as error:
        raise pg.UserError(f"{spec}: {error.text[0].lower()}{error.text[1:]}") from error
    except Exception as error:
        if hints := [note for note in getattr(error, "__notes__", []) if "jax.numpy" in note]:
            raise pg.UserError(f"{spec} cannot be compiled. {hints[0]}") from error
        raise pg.UserError(
            f"{spec} failed on one point of {dim} coordinates: {first_line(error)}."
        ) from error


def _agreeing(target: Any, shape: tuple[int, ...], dim: int | None, spec: str) -> pg.Target:
    size = math.prod(shape)
    if dim not in (None, size):
        raise pg.ArgumentError(
            f"{spec} has points of shape {shape}, with {size} coordinates: leave {pg.named('dim')} out, got "
            f"{dim}."
        )
    return target


def _module_and_name(spec: str) -> tuple[ModuleType, str]:
    """Import the module that a specification names; return it with the name in it."""
    module_name, colon, name = spec.rpartition(":")
    if not colon or not module_name or not name:
        raise pg.UserError(
            f"{spec!r} does not name a function: write MODULE:FUNCTION, or path/to/file.py:FUNCTION."
        )
    return _load(module_name), name


def _missing(module: ModuleType, spec: str) -> pg.UserError:
    module_name, _, name = spec.rpartition(":")
    known = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
    return pg.UserError(f"{module_name} has no function {name!r}. It has: {', '.join(known) or 'none'}.")


class _FromSource(importlib.machinery.SourceFileLoader):
    """Import a file as it is now: compiled code in a folder beside it may be of another file."""

    def get_code(self, fullname: str) -> CodeType:
        """Compile the file."""
        return self.source_to_code(self.get_data(self.path), self.path)


def _load(name: str) -> ModuleType:
    """Import a module by its name, or from a file."""
    path, is_file = expanded(name), name.endswith(".py")
    if is_file and not path.is_file():
        raise pg.UserError(f"There is no file {name} (looked in {Path.cwd()}).")
    if is_file:
        check_unicode(path.absolute())  # JAX keeps the names of files in its programs
    # As with `python file.py` and `python -m`, so that it can import the files beside it.
    sys.path.insert(0, str(path.absolute().parent if is_file else Path.cwd()))
    try:
        if not is_file:
            return importlib.import_module(name)
        # Under a different name, since an installed package may have the same one.
        name = f"_pathgrad_density_{path.stem}"
        spec = importlib.util.spec_from_file_location(name, path, loader=_FromSource(name, str(path)))
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # where its classes look for it
        spec.loader.exec_module(module)
    except SystemExit as error:
        raise pg.UserError(
            f"Importing {name} ended with sys.exit({error.code!r}): it runs as a program. Put that "
            'part of it below `if __name__ == "__main__":`.'
        ) from error
    except Exception as error:
        cause = first_line(error)
        if is_file:
            raise pg.UserError(f"Importing {name} failed: {cause}") from error
        raise pg.UserError(
            f"Importing the module {name} failed: {cause}. For a file, write its path with `.py`."
        ) from error
    finally:
        sys.path.pop(0)
    return module
