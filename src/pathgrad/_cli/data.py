"""`pathgrad data list`, `pathgrad data verify` and `pathgrad data download`."""

import dataclasses
import sys
from pathlib import Path
from typing import Annotated

import tyro

from pathgrad._train.progress import Show, progress
from pathgrad._words.errors import UserError, as_options
from pathgrad.experiments.vae.data.contents import damage, present
from pathgrad.experiments.vae.data.sources import HOW_CHOSEN, SOURCES, Source, data_folder, find

from .arguments import parse
from .tables import print_table

try:
    from pathgrad.experiments.vae.data.download import download
except ImportError:  # pooch is not there, which nothing else needs
    download = None

_WHERE = "Folder of the data. By default the environment variable PATHGRAD_DATA, else one in your cache."
_Folder = Annotated[Path | None, tyro.conf.arg(help=_WHERE)]
_Names = Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[NAME ...]")]


@dataclasses.dataclass(frozen=True)
class List:
    """Show the image data sets, and which of them are there."""

    data: _Folder = None


@dataclasses.dataclass(frozen=True)
class Verify:
    """Compare the hashes of the files that are there with the known ones.

    The exit code is 1 if a file is damaged, or if one of a data set that was named is missing.
    """

    names: _Names = ()
    """Data sets: mnist, omniglot, omniglot-rebuilt, caltech, freyfaces. By default all."""
    data: _Folder = None


@dataclasses.dataclass(frozen=True)
class Download:
    """Fetch data sets from where they were published.

    Files that are there and undamaged are left alone; damaged ones are replaced. After an interruption,
    the same command fetches what is missing; a file that was broken off begins anew.
    """

    names: _Names = ()
    """Data sets: mnist, omniglot, caltech, freyfaces. By default all of these."""
    data: _Folder = None


def run(prog: str, words: list[str]) -> int:
    """Do what the last word of the command says."""
    return {"list": _list, "verify": _verify, "download": _download}[prog.split()[-1]](prog, words)


def _list(prog: str, words: list[str]) -> int:
    folder = data_folder(parse(List, prog, words).data)
    rows = [
        (name, " / ".join(f"{n:,}" for n in s.images), "x".join(map(str, s.pixels)), _state(s, folder))
        for name, s in SOURCES.items()
    ]
    print_table(["data set", "train / valid. / test", "pixels", "state"], rows)
    # Below the table, since a terminal has no room for columns of long paths and sentences.
    for name, source in SOURCES.items():
        print(f"{name}: {source.remark}")
        for files in source.files.values():
            print(f"    {(present(files, folder) or files[0]).path}")
    print(f"folder: {folder} ({as_options(HOW_CHOSEN)})")
    return 0


def _state(source: Source, folder: Path) -> str:
    """Sum up what is there of a data set: of each part, the file that would be read."""
    found = [file for files in source.files.values() if (file := present(files, folder))]
    if any(damage(file, folder) for file in found):
        return "damaged"
    if len(found) == len(source.files):
        return "complete"
    return f"{len(found)} of {len(source.files)} files" if found else "missing"


def _verify(prog: str, words: list[str]) -> int:
    given = parse(Verify, prog, words)
    folder = data_folder(given.data)
    bad = False
    for name in _known(given.names) or SOURCES:
        for files in SOURCES[name].files.values():
            if present(files, folder) is None:
                print(f"{name}: {files[0].path} is missing")
                bad = bad or name in given.names
            # Of a part that is there twice, packed and not, both are looked at.
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
        if not SOURCES[name].addresses:
            [file] = SOURCES[name].files["all"]
            raise UserError(f"{name} has no address to download it from; put {file.path} into {folder}.")
    failures = 0
    for name in names:
        for files in SOURCES[name].files.values():
            there = present(files, folder)
            if there is not None and damage(there, folder) is None:
                print(f"{name}: {there.path} is there")
                continue
            wanted = next(file for file in files if file.address is not None)
            if download is None:
                raise UserError(
                    "Downloads need the package pooch: `pip install pooch`. Or fetch "
                    f"{wanted.address} by hand, and put it into {(folder / wanted.path).parent}."
                )
            try:
                with progress(wanted.path) as show:
                    download(wanted, folder, _Bar(wanted.path, show))
            except UserError as error:
                # The other files come from other places: one that is down shall not keep them away.
                print(f"pathgrad: {as_options(error.text)}", file=sys.stderr)
                failures += 1
            else:
                print(f"{name}: {wanted.path} is downloaded")
    print(f"folder: {folder}")
    return 1 if failures else 0


def _known(names: tuple[str, ...]) -> list[str]:
    """Return the names without repetitions; refuse those that are of no data set."""
    for name in names:
        find(name)
    return list(dict.fromkeys(names))


class _Bar:
    """Is told by pooch how much is downloaded."""

    total = 0  # bytes, set by pooch if the server says how many

    def __init__(self, name: str, show: Show) -> None:
        self.name, self.done, self.show = name, 0, show

    def update(self, size: int) -> None:
        # Pieces are counted as if all were whole ones.
        self.done = min(self.done + size, self.total or self.done + size)
        whole = f" of {self.total / 1e6:.1f}" if self.total else ""
        shares = [self.done / self.total] if self.total else []
        self.show(f"{self.name}: {self.done / 1e6:.1f}{whole} MB", shares)

    def reset(self) -> None:
        """Do nothing: pooch would only count all of it once more."""

    close = reset
