"""Whether there is something to compute on."""

import os

from .._words.errors import UserError
from .._words.text import first_line


def check_devices() -> None:
    """Raise a `UserError` unless JAX has something to compute on."""
    from .. import devices  # not before: help is printed without JAX

    try:
        devices.number_in_all()
    except (RuntimeError, AssertionError) as error:
        given = os.environ.get("JAX_PLATFORMS")
        why = first_line(error)
        if given:
            raise UserError(
                f"JAX_PLATFORMS is {given}, and JAX finds no such device here ({why}). "
                "Unset it, or set it to cpu."
            ) from error
        raise UserError(f"JAX finds no device to compute on: {why}. Set JAX_PLATFORMS to cpu.") from error
