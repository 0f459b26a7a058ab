"""Train flows with path gradients."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._api import *  # noqa: F403
else:
    # The names live in `_api.py`, which needs JAX: over a second to import. They are opened on first use,
    # so that `pathgrad --help` answers at once.
    def __getattr__(name):
        import importlib

        if name.startswith("_"):
            raise AttributeError(f"module 'pathgrad' has no attribute {name!r}")
        if name in ("devices", "metrics"):  # the library's own modules ask for these while it loads
            return importlib.import_module(f"pathgrad.{name}")
        return getattr(importlib.import_module("pathgrad._api"), name)

    def __dir__():
        import importlib

        names = dir(importlib.import_module("pathgrad._api"))
        return [name for name in names if not name.startswith("_")]
