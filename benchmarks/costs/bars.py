"""Compare measured numbers with the bars, the targets that this project has set itself."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from .records import Row, StudyRecord


class Bar(NamedTuple):
    """A target for one measured number.

    Attributes:
        what: Description of what is measured, and where.
        paper: Value in the paper, as text; empty if it has none.
        limit: The target value.
        at_most: Whether the target is an upper bound.
        measured: The measured number.
    """

    what: str
    paper: str
    limit: float
    at_most: bool
    measured: float

    @property
    def met(self) -> bool:
        """Whether the number meets the target."""
        return self.measured <= self.limit if self.at_most else self.measured >= self.limit

    @property
    def verdict(self) -> str:
        """Met or missed, and by how much relative to the target."""
        by = abs(self.measured / self.limit - 1)
        return f"{'met' if self.met else '**missed**'} by {100 * by:.1f} %"


def bars(studies: Mapping[str, StudyRecord]) -> list[Bar]:
    """Return the bars that the given studies measure."""
    return [
        *_flops(studies.get("choices")),
        *_lattice_times(studies.get("published")),
        *_second_copy(studies),
        *_memory(studies),
        *_field_growth(studies.get("field")),
        *_rivals(studies.get("rivals")),
    ]


def _rows(study: StudyRecord | None) -> list[Row]:
    return study["rows"] if study else []


def _network(row: Row) -> str:
    hidden = "-".join([str(row["width"])] * row["depth"])
    return f"{row['dim']}-{hidden}-{row['dim']}"


def _flops(study: StudyRecord | None) -> Iterator[Bar]:
    for row in _rows(study):
        ratio = row["ratios"].get("path / total")
        if row["divergence"] == "hutchinson" and ratio:
            what = f"path / total, FLOPs, Hutchinson, {_network(row)}, {row['adjoint']}"
            yield Bar(what, "1.14 (time)", 0.90, True, ratio["flops"])


_PAPER_TIMES = {12: "1.14", 20: "1.12", 32: "1.05"}


def _lattice_times(study: StudyRecord | None) -> Iterator[Bar]:
    for row in _rows(study):
        ratio = row["ratios"].get("path / total")
        if ratio and ratio["seconds"]:
            what = f"path / total, time, published lattice model, L = {row['size']}"
            paper = _PAPER_TIMES.get(row["size"], "")
            yield Bar(what, paper, 1.20, True, ratio["seconds"]["median"])


def _second_copy(studies: Mapping[str, StudyRecord]) -> Iterator[Bar]:
    for name in ("choices", "published"):
        for row in _rows(studies.get(name)):
            ratio = row["ratios"].get("two-copy / path")
            if not ratio or not ratio["seconds"]:
                continue
            configuration = (
                f"{row['divergence']}, {_network(row)}, {row['adjoint']}"
                if name == "choices"
                else f"published lattice model, L = {row['size']}"
            )
            what = f"two-copy / path, time, {configuration}"
            yield Bar(what, "> 1", 1.4, False, ratio["seconds"]["median"])


def _memory(studies: Mapping[str, StudyRecord]) -> Iterator[Bar]:
    ratios = [
        (row["ratios"]["path / total"]["temporary_bytes"], name)
        for name, study in studies.items()
        for row in study["rows"]
        if row["ratios"].get("path / total", {}).get("temporary_bytes") is not None
    ]
    if ratios:
        largest, name = max(ratios)
        what = f"path / total, memory, largest of {len(ratios)} configurations (in `{name}`)"
        yield Bar(what, "1", 1.1, True, largest)


def _field_growth(study: StudyRecord | None) -> Iterator[Bar]:
    for fit in study["growth"] if study else []:
        if fit["quantity"] in ("flops", "seconds"):
            what = f"exponent of the volume, one {fit['estimator']} of the lattice, {fit['quantity']}"
            yield Bar(what, "2", 1.5, True, fit["exponent"])


def _rivals(study: StudyRecord | None) -> Iterator[Bar]:
    # Its gradient is the total one: compare it with our total gradient, and with the one we recommend.
    for row in _rows(study):
        for estimator in ("total", "path"):
            ratio = row["ratios"].get(f"bijx / {estimator}")
            if row["size"] == 12 and ratio and ratio["seconds"]:
                what = f"bijx / {estimator}, time, lattice gradient, same model and solver, L = 12"
                yield Bar(what, "", 20.0, False, ratio["seconds"]["median"])
