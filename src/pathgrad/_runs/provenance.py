"""What a result depends on besides its configuration."""

import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

_PACKAGES = ("pathgrad", "jax", "jaxlib", "equinox", "diffrax", "optax", "numpy", "scipy")


def package_version(name: str) -> str | None:
    """Return the version of an installed package without importing it, or `None`."""
    try:
        return importlib.metadata.version(name)
    except Exception:  # not installed, or with broken metadata
        return None


def provenance() -> dict[str, Any]:
    """Return what a result depends on besides its configuration, quickly and without ever raising.

    These are the versions of Python and of the packages that compute, the platform, the number of CPUs, the
    command line, and the Git commit of pathgrad's own checkout, followed by `-dirty` if tracked files were
    changed. An unknown value is `None`.
    """
    return {
        "python": platform.python_version(),
        **{name: package_version(name) for name in _PACKAGES},
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "commit": _commit(),
        # Arguments that are not UTF-8 arrive as lone surrogates, which cannot be written to a file.
        "command": _command().encode(errors="backslashreplace").decode(),
    }


def _command() -> str:
    """Return the command line, without the folder that the program is installed in."""
    program, *arguments = getattr(sys, "argv", None) or [""]
    name = Path(program).name
    words = ["python", "-m", "pathgrad"] if name == "__main__.py" else [name]
    return shlex.join([*words, *arguments])


def _commit() -> str | None:
    # A package installed into an environment inside someone's work tree does not belong to that tree.
    if _git("ls-files", "--error-unmatch", Path(__file__).name) is None:
        return None
    return _git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")


def _git(*arguments: str) -> str | None:
    # In a Git hook, variables such as GIT_DIR would point to another repository.
    environment = {key: text for key, text in os.environ.items() if not key.startswith("GIT_")}
    command = ["git", "--no-optional-locks", *arguments]
    folder = Path(__file__).parent
    try:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=5)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
