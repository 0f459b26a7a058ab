"""The JSON form of studies."""

from collections.abc import Mapping
from typing import Any, TypedDict

# A row of a study: a flat description of what was measured, the costs of the programs by name under
# `estimators`, and `ratios`; for an autoencoder also `flow_alone`. Written by `pathgrad._bench.record`.
Row = Mapping[str, Any]


class StudyRecord(TypedDict):
    """One study; see `studies.Study` for the fields."""

    study: str
    title: str
    quick: bool
    variable: str | None
    series_by: list[str]
    rows: list[Row]
    growth: list[Row]
    provenance: Row
