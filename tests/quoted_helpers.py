"""Numbers quoted in Markdown, and the values they come from.

A comment below a paragraph, a list or a table says where its numbers come from:

    The path gradient reaches 99.87 % in 7 min.

    <!-- from
    99.87 <- mean results/phi4/runs/best-s?-L12.json evaluation.ess in %
    in 7 min <- sum results/phi4/runs/best-s1-L{6,8,12}.json curve.seconds[-1] in min
    -->

Left of each arrow is a piece of the text above. The numbers in it are compared, in order, with the values on
the right, rounded as they are written. Several values are separated by semicolons. A value is

    [mean|sd|sum|largest|smallest] FILE PATH [/ PATH | * PATH | - PATH | + PATH]... [in UNIT]

FILE is relative to the root of the repository. With wildcards or braces it is several files, and each of them
gives a value unless a word such as `mean` makes them one. A file can also be given once, after `from`. PATH
goes into the JSON: `a.b` is a key (`a."b / c"` if it has spaces), `a[-1]` an item of a list, `a[size=12]` the
items with this value, and in a table of columns `a[epoch=5]` the item of `a` where `epoch` beside it is 5.
Operators are applied from left to right.

Below a table the left side can also be the heading of a column; it then holds for every row. FILE may then
be missing: it is what the row links to. `{heading}` in it is the row's cell in that column.

`TEXT <- no file: REASON` is for numbers that are in no file. Where the lines would be too long for a page, as
in the README, they are in a text file: `<!-- from results/readme_numbers.txt -->`.
"""

import itertools
import json
import math
import operator
import re
import statistics
from pathlib import Path
from typing import NamedTuple

from .docs_helpers import ROOT

NUMBER = re.compile(r"(?<![\w.])(?<![a-zA-Z]-)[-+−]?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?(?![\w]|\.\d|-[a-z])")
UNITS = {"%": 100, "min": 1 / 60, "ms": 1e3, "ps": 1e12}
UNITS |= {"GFLOP": 1e-9, "MB": 1e-6, "M": 1e-6, "bits": 1 / math.log(2)}
HOW = {"mean": statistics.fmean, "sd": statistics.stdev, "sum": math.fsum, "largest": max, "smallest": min}
OPERATORS = {"/": operator.truediv, "*": operator.mul, "-": operator.sub, "+": operator.add}
_WORDS = re.compile(r'(?:"[^"]*"|\[[^]]*\]|[^\s"\[])+')
_STEP = re.compile(r'(?:"([^"]*)"|([^."\[\]]+))((?:\[[^]]*\])*)\.?')


class QuoteError(Exception):
    """A number on a page is not what its file says, or a source cannot be read."""


class Block(NamedTuple):
    """A paragraph, list or table, and the lines of the comment below it."""

    text: str
    file: str  # named after `from`; empty if there is none
    sources: list[str]


def blocks_of(markdown: str) -> list[Block]:
    """Split a page into blocks with their sources; what is fenced off is left out."""
    found: list[Block] = []
    for part in re.split(r"\n\s*\n", re.sub(r"^```.*?^```$", "", markdown, flags=re.DOTALL | re.MULTILINE)):
        part = re.sub(r"<!-- from (\S+\.txt) -->", _from_file, part)
        comment = re.fullmatch(r"\s*<!-- from *(\S*)\n(.*?)\n?-->\s*", part, re.DOTALL)
        if comment is None:
            found.append(Block(part.strip("\n"), "", []))
        elif not found or found[-1].sources:
            raise QuoteError(f"nothing above it to explain: {part.strip()[:60]}")
        else:
            found[-1] = Block(found[-1].text, comment[1], comment[2].splitlines())
    return found


def _from_file(comment: re.Match[str]) -> str:
    return f"<!-- from\n{(ROOT / comment[1]).read_text()}-->"


def shown(text: str) -> str:
    """Return the text without code, addresses and emphasis: where numbers are quoted."""
    text = re.sub(r"`[^`]*`", " ", text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return " ".join(text.replace("**", "").split())


def decimals_in(text: str) -> list[str]:
    """Return the numbers with a decimal point."""
    return [number for number in NUMBER.findall(text) if "." in number]


# Tables


class Table(NamedTuple):
    head: list[str]
    rows: list[list[str]]


def table_in(text: str) -> Table | None:
    lines = [[cell.strip() for cell in line.strip()[1:-1].split("|")] for line in text.splitlines()]
    is_table = len(lines) > 2 and all(line.strip().startswith("|") for line in text.splitlines())
    return Table(lines[0], lines[2:]) if is_table else None


def links_of(row: list[str], page: Path) -> list[Path]:
    """Return the files of numbers that a row links to."""
    targets = re.findall(r"\]\(([^)]+\.json)\)", " ".join(row))
    return [(page.parent / target).resolve() for target in targets]


# Values


def files_named(pattern: str) -> list[Path]:
    """Return the files of a pattern with wildcards and one pair of braces, in their order."""
    before, brace, rest = pattern.partition("{")
    inside, _, after = rest.partition("}")
    patterns = [before + each + after for each in inside.split(",")] if brace else [pattern]
    found = [path for each in patterns for path in sorted(ROOT.glob(each))]
    if not found:
        raise QuoteError(f"no file {pattern}")
    return found


def values_at(obj, path: str) -> list:
    """Return what a path leads to; several values if it selects several items."""
    steps = [m.groups() for m in _STEP.finditer(path)]
    here = [(obj, None)]  # each with what holds it
    for quoted, plain, selectors in steps:
        try:
            here = [(value[quoted or plain], value) for value, _ in here]
            for selector in re.findall(r"\[([^]]*)\]", selectors):
                here = [pair for value, holder in here for pair in _selected(value, holder, selector)]
        except (KeyError, IndexError, TypeError) as error:
            raise QuoteError(f"{path} leads nowhere ({error})") from error
    return [value for value, _ in here]


def _selected(value: list, holder, selector: str) -> list:
    if re.fullmatch(r"-?\d+", selector):
        return [(value[int(selector)], value)]
    wanted = [each.split("=", 1) for each in selector.split(",")]

    def fits(i):
        told = (value[i][name] if isinstance(value[i], dict) else holder[name][i] for name, _ in wanted)
        return all(_same(a, b) for a, (_, b) in zip(told, wanted, strict=True))

    return [(value[i], value) for i in range(len(value)) if fits(i)]


def _same(value, word: str) -> bool:
    return value == float(word) if isinstance(value, int | float) else str(value) == word


def evaluate(expression: str, files: list[Path]) -> list[float]:
    """Return the values of one source; `files` are meant where it names none."""
    words, scale = _WORDS.findall(expression), 1.0
    if words[-2:-1] == ["in"]:
        if words[-1] not in UNITS:
            raise QuoteError(f"unknown unit {words[-1]}: one of {', '.join(UNITS)}")
        *words, _, unit = words
        scale = UNITS[unit]
    operators = [i for i, word in enumerate(words) if word in OPERATORS]
    ends = [*operators, len(words)]
    files = _files(words[: ends[0]], files)  # those of the first term are meant in the others too
    total = _term(words[: ends[0]], files)
    for start, end in itertools.pairwise(ends):
        other = _term(words[start + 1 : end], files)
        total = [OPERATORS[words[start]](a, b) for a, b in zip(total, other, strict=True)]
    return [value * scale for value in total]


def _files(term: list[str], files: list[Path]) -> list[Path]:
    named = [path for word in term if word.endswith(".json") for path in files_named(word)]
    return named or files


def _term(words: list[str], files: list[Path]) -> list[float]:
    found = [v for f in _files(words, files) for v in values_at(json.loads(f.read_text()), words[-1])]
    values = [v for each in found for v in (each if isinstance(each, list) else [each])]
    if not values or any(value is None for value in values):
        raise QuoteError(f"no value for {' '.join(words)}")
    if words[0] == "sd" and len(values) == 1:
        return []  # one run does not scatter
    return [HOW[words[0]](values)] if words[0] in HOW else [float(value) for value in values]


# Comparison


def written_as(value: float, quoted: str) -> str:
    """Write a value with as many digits as a quoted number has."""
    plain = quoted.replace(",", "").replace("−", "-")
    sign = "+" if plain[0] == "+" else ""
    mantissa, e, _ = plain.partition("e")
    digits = len(mantissa.partition(".")[2])
    text = f"{value:{sign}.{digits}{'e' if e else 'f'}}"
    return re.sub(r"e([-+])0*(\d)", lambda m: f"e{m[1].strip('+')}{m[2]}", text)


def check(text: str, expected: list[float]) -> None:
    """Raise unless the numbers in a text are these values."""
    quoted = NUMBER.findall(text)
    if len(quoted) != len(expected):
        raise QuoteError(f"{text!r} has {len(quoted)} numbers, its source {len(expected)} values {expected}")
    for number, value in zip(quoted, expected, strict=True):
        if written_as(value, number) != number.replace(",", "").replace("−", "-"):
            raise QuoteError(f"{number} in {text!r} should be {written_as(value, number)} ({value:.8g})")


def check_block(block: Block, page: Path) -> set[str]:
    """Raise unless the sources of a block agree with it; return the decimal numbers they explain."""
    table = table_in(block.text)
    explained: set[str] = set()
    for line in block.sources:
        left, arrow, right = (part.strip() for part in line.partition("<-"))
        if not arrow or not left or not right:
            raise QuoteError(f"not of the form TEXT <- SOURCE: {line!r}")
        files = files_named(block.file) if block.file else []
        if table is not None and left in table.head:
            explained |= _check_column(table, left, right, files, page)
            continue
        if left not in shown(block.text):
            raise QuoteError(f"{left!r} is not there any more")
        explained |= {*decimals_in(left)}
        if not re.match(r"no file: \S", right):
            check(left, [v for each in right.split(";") for v in evaluate(each, files)])
    return explained


def _check_column(table: Table, name: str, sources: str, files: list[Path], page: Path) -> set[str]:
    explained: set[str] = set()
    for row in table.rows:
        cells = dict(zip(table.head, row, strict=True))
        cell = shown(cells[name])
        own = re.sub(r"\{([^{},]+)\}", lambda m, cells=cells: shown(cells[m[1]]), sources)
        linked = links_of(row, page) or files
        try:
            values = [v for each in own.split(";") for v in evaluate(each, linked)]
        except QuoteError:
            if NUMBER.search(cell):
                raise
            continue  # nothing in the file, and nothing on the page
        check(cell, values)
        explained |= {*decimals_in(cell)}
    return explained


def unexplained(block: Block, explained: set[str]) -> list[str]:
    """Return the decimal numbers of a block without a source."""
    return [number for number in decimals_in(shown(block.text)) if number not in explained]
