"""`pathgrad data list`, `pathgrad data verify` and `pathgrad data download`."""

import contextlib
import dataclasses
import difflib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import tyro

from pathgrad._errors import UserError, as_options
from pathgrad.experiments.vae.data.contents import damage, present
from pathgrad.experiments.vae.data.download import download
from pathgrad.experiments.vae.data.sources import HOW_CHOSEN, SOURCES, Source, data_folder

from .arguments import parse

_PLAIN_SECONDS = 10.0  # between plain lines, so that logs stay readable

_Names = Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[NAME ...]")]


@dataclasses.dataclass(frozen=True)
class List:
    """Show the image data sets, and which of them are there."""

    data: Path | None = None
    """Folder of the data. By default the environment variable PATHGRAD_DATA, else one in your cache."""


@dataclasses.dataclass(frozen=True)
class Verify:
    """Compare the hashes of the files that are there with the known ones.

    The exit code is 1 if a file is damaged, or if one of a data set that was named is missing.
    """

    names: _Names = ()
    """Data sets: mnist, omniglot, omniglot-rebuilt, caltech, freyfaces. By default all."""
    data: Path | None = None
    """Folder of the data. By default the environment variable PATHGRAD_DATA, else one in your cache."""


@dataclasses.dataclass(frozen=True)
class Download:
    """Fetch data sets from where they were published.

    Files that are there and undamaged are left alone; damaged ones are replaced. After an interruption,
    the same command goes on where it was.
    """

    names: _Names = ()
    """Data sets: mnist, omniglot, caltech, freyfaces. By default all of these."""
    data: Path | None = None
    """Folder to put them into. By default the environment variable PATHGRAD_DATA, else one in your cache."""


def run(prog: str, words: list[str]) -> int:
    """Do what the last word of the command says."""
    return {"list": _list, "verify": _verify, "download": _download}[prog.split()[-1]](prog, words)


def _list(prog: str, words: list[str]) -> int:
    folder = data_folder(parse(List, prog, words).data)
    from rich.console import Console
    from rich.table import Table

    table = Table("data set", "train / valid. / test", "pixels", "state")
    for name, source in SOURCES.items():
        table.add_row(
            name,
            " / ".join(f"{n:,}" for n in source.images),
            "x".join(map(str, source.pixels)),
            _state(source, folder),
        )
    # Elsewhere than on a terminal, wide enough never to wrap.
    width = None if sys.stdout.isatty() else 400
    Console(width=width, markup=False, highlight=False).print(table)
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
                    print(
                        f"{name}: {file.path} {f'is damaged: it {wrong}' if wrong else 'is good'}"
                    )
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
            raise UserError(
                f"{name} has no address to download it from; put {file.path} into {folder}."
            )
    failures = 0
    for name in names:
        for files in SOURCES[name].files.values():
            there = present(files, folder)
            if there is not None and damage(there, folder) is None:
                print(f"{name}: {there.path} is there")
                continue
            wanted = next(file for file in files if file.address is not None)
            try:
                with _progress(wanted.path) as tell:
                    download(wanted, folder, tell)
            except UserError as error:
                # The other files come from other places: one that is down shall not keep them away.
                print(f"pathgrad: {as_options(error.text)}", file=sys.stderr)
                failures += 1
                continue
            print(f"{name}: {wanted.path} has come")
    print(f"folder: {folder}")
    return 1 if failures else 0


def _known(names: tuple[str, ...]) -> list[str]:
    """Return the names without repetitions; refuse those that are of no data set."""
    for name in names:
        if name not in SOURCES:
            near = difflib.get_close_matches(name, SOURCES, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise UserError(
                f"there is no data set {name!r}. Choose from: {', '.join(SOURCES)}.{hint}"
            )
    return list(dict.fromkeys(names))


@contextlib.contextmanager
def _progress(name: str) -> Iterator[Callable[[int, int | None], None]]:
    """Yield a function that shows how much has come: by a bar on a terminal, else by lines."""
    if not sys.stderr.isatty():
        yield _lines(name)
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(Path(name).name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _lines(name: str) -> Callable[[int, int | None], None]:
    last = -_PLAIN_SECONDS

    def tell(done, total):
        nonlocal last
        now = time.monotonic()
        if now - last < _PLAIN_SECONDS and done != total:
            return
        last = now
        whole = "" if total is None else f" of {total / 1e6:.1f}"
        print(f"{name}: {done / 1e6:.1f}{whole} MB", file=sys.stderr, flush=True)

    return tell
