"""Packages that only some users need, imported when they are used."""

import importlib
from typing import Any

from .errors import UserError


def needed(module: str, extra: str) -> Any:
    """Import a module of an optional package; say how to install it if it is missing.

    Args:
        module: Name of the module.
        extra: The extra of pathgrad that installs its package.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if (error.name or "").partition(".")[0] != package:
            raise  # something that the package itself lacks
        raise UserError(f'This needs {package}. Install it with: pip install "pathgrad[{extra}]"') from error
