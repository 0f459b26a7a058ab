"""`pathgrad data list`, `pathgrad data verify` and `pathgrad data download`."""

import dataclasses
import sys
from pathlib import Path
from typing import Annotated

import tyro

from pathgrad._data.contents import damage, present
from pathgrad._data.files import HOW_CHOSEN, data_folder
from pathgrad._train.progress import Show, progress
from pathgrad._words.errors import UserError, as_options
from pathgrad.experiments.vae.data.sources import SOURCES, Source, find
from pathgrad.targets.sources import SOURCES as TARGETS
from pathgrad.targets.sources import Source as TargetSource

from .arguments import parse
from .tables import print_table

try:
    from pathgrad._data.download import download
except ImportError:  # pooch is not installed; only downloads need it
    download = None

_WHERE = "Folder of the data. By default the environment variable PATHGRAD_DATA, else one in your cache."
_Folder = Annotated[Path | None, tyro.conf.arg(help=_WHERE)]
_Names = Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[NAME ...]")]


@dataclasses.dataclass(frozen=True)
class List:
    """List the image data sets and the data of the benchmark's targets, and which of them you have."""

    data: _Folder = None


@dataclasses.dataclass(frozen=True)
class Verify:
    """Compare the hashes of the files that you have with the known ones.

    The exit code is 1 if a file is damaged, or if a file of a data set that you named is missing.
    """

    names: _Names = ()
    """Data sets: mnist, omniglot, omniglot-rebuilt, caltech, freyfaces. Data of targets: see `pathgrad data
    list`; `targets` means all of them. By default everything."""
    data: _Folder = None


@dataclasses.dataclass(frozen=True)
class Download:
    """Download data sets from their original sources.

    Intact files that you already have are left alone; damaged ones are replaced. After an interruption,
    the same command downloads what is missing; a partly downloaded file starts again.
    """

    names: _Names = ()
    """Data sets: mnist, omniglot, caltech, freyfaces. By default all of these. Data of targets: see `pathgrad
    data list`; `targets` means all of them."""
    data: _Folder = None


def run(prog: str, words: list[str]) -> int:
    """Run the subcommand that the last word of the command names."""
    return {"list": _list, "verify": _verify, "download": _download}[prog.split()[-1]](prog, words)


def _list(prog: str, words: list[str]) -> int:
    folder = data_folder(parse(List, prog, words).data)
    rows = [
        (name, " / ".join(f"{n:,}" for n in s.images), "x".join(map(str, s.pixels)), _state(s, folder))
        for name, s in SOURCES.items()
    ]
    print_table(["data set", "train / valid. / test", "pixels", "state"], rows)
    print()
    rows = [(name, str(len(s.files)), _state(s, folder)) for name, s in TARGETS.items()]
    print_table(["data of targets", "files", "state"], rows)
    # Below the tables, because a terminal has no room for columns of long paths and sentences.
    for name, source in _every().items():
        print(f"{name}: {source.remark}")
        for files in source.files.values():
            print(f"    {(present(files, folder) or files[0]).path}")
    print(f"folder: {folder} ({as_options(HOW_CHOSEN)})")
    return 0


def _every() -> dict[str, Source | TargetSource]:
    return {**SOURCES, **TARGETS}


def _state(source: Source | TargetSource, folder: Path) -> str:
    """Return the state of a data set, judged by the file of each part that would be read."""
    existing = [file for files in source.files.values() if (file := present(files, folder))]
    if any(damage(file, folder) for file in existing):
        return "damaged"
    if len(existing) == len(source.files):
        return "complete"
    return f"{len(existing)} of {len(source.files)} files" if existing else "missing"


def _verify(prog: str, words: list[str]) -> int:
    given = parse(Verify, prog, words)
    folder = data_folder(given.data)
    bad = False
    for name in _known(given.names) or _every():
        for files in _every()[name].files.values():
            if present(files, folder) is None:
                print(f"{name}: {files[0].path} is missing")
                bad = bad or name in given.names
            # If a part exists both packed and unpacked, check both files.
            for file in files:
                if (folder / file.path).is_file():
                    wrong = damage(file, folder)
                    print(f"{name}: {file.path} {f'is damaged: it {wrong}' if wrong else 'is good'}")
                    bad = bad or wrong is not None
    print(f"folder: {folder}")
    return 1 if bad else 0


def _download(prog: str, words: list[str]) -> int:
    given = parse(Download, prog, words)
    folder = data_folder(given.data)
    names = _known(given.names) or [name for name, s in SOURCES.items() if s.addresses]
    for name in names:
        if not _every()[name].addresses:
            [file] = _every()[name].files["all"]
            raise UserError(f"{name} has no address to download from. Put {file.path} into {folder}.")
    failures = 0
    for name in names:
        for files in _every()[name].files.values():
            existing = present(files, folder)
            if existing is not None and damage(existing, folder) is None:
                print(f"{name}: {existing.path} already exists")
                continue
            wanted = next(file for file in files if file.address is not None)
            if download is None:
                raise UserError(
                    "Downloads need the package pooch: `pip install pooch`. Or download "
                    f"{wanted.address} yourself, and put it into {(folder / wanted.path).parent}."
                )
            try:
                with progress(wanted.path) as show:
                    download(wanted, folder, _Bar(wanted.path, show))
            except UserError as error:
                # Other files come from other servers: one that is down must not block them.
                print(f"pathgrad: {as_options(error.text)}", file=sys.stderr)
                failures += 1
            else:
                print(f"{name}: {wanted.path} was downloaded")
    print(f"folder: {folder}")
    return 1 if failures else 0


def _known(names: tuple[str, ...]) -> list[str]:
    """Return the names without repetitions, and those that `targets` stands for; raise for an unknown one."""
    known: dict[str, None] = {}
    for name in names:
        if name not in ("targets", *TARGETS):
            find(name)
        known |= dict.fromkeys(TARGETS if name == "targets" else (name,))
    return list(known)


class _Bar:
    """A progress bar that pooch updates."""

    total = 0  # bytes, set by pooch if the server reports how many

    def __init__(self, name: str, show: Show) -> None:
        self.name, self.done, self.show = name, 0, show

    def update(self, size: int) -> None:
        # pooch counts the last piece as if it were a full one.
        self.done = min(self.done + size, self.total or self.done + size)
        total = f" of {self.total / 1e6:.1f}" if self.total else ""
        shares = [self.done / self.total] if self.total else []
        self.show(f"{self.name}: {self.done / 1e6:.1f}{total} MB", shares)

    def reset(self) -> None:
        """Do nothing: pooch would only count everything a second time."""

    close = reset
