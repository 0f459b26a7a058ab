"""Records of fits as rows of a table, beside what others have published."""

from collections.abc import Sequence

from pathgrad._words.text import UNKNOWN, duration, percent, plain, with_error

from .record import Record

HEAD = (
    "target", "seed", "ELBO", "best published", "log Z", "known log Z", "ESS", "forward ESS", "k-hat",
    "error of means", "CPU time", "compiling", "verdict",
)  # fmt: skip


def row(record: Record) -> tuple[str, ...]:
    """Return the row of a record."""
    numbers, known, seconds = record["numbers"], record["known"], record["seconds"]
    elbos = [p["value"] for p in record["published"] if p["what"] == "ELBO"]
    means = [numbers["mean_error"], numbers["mean_error_weighted"]]
    return (
        record["target"],
        str(record["seed"]),
        with_error(numbers["elbo"], numbers["elbo_err"]),
        plain(max(elbos, default=None), ".6g"),
        with_error(numbers["log_z"], numbers["log_z_err"]),
        with_error(known["log_z"], known["log_z_err"]),
        percent(numbers["ess"]),
        percent(numbers["forward_ess"]),
        plain(numbers["khat"], ".2f"),
        UNKNOWN if None in means else " / ".join(plain(value, ".3f") for value in means),
        duration(seconds["cpu"]),
        duration(seconds["compile"]),
        record["verdict"]["level"].lower(),
    )


def remarks(records: Sequence[Record]) -> list[str]:
    """Return a line about each published number, with what these records have instead where it is no ELBO."""
    lines = []
    for target in dict.fromkeys(record["target"] for record in records):
        mine = [record for record in records if record["target"] == target]
        for published in mine[0]["published"]:
            value = with_error(published["value"], published["error"])
            line = f"{target}: {published['what']} {value} ({published['method']}; {published['source']})"
            if published["what"] != "ELBO":
                here = [with_error(r["numbers"]["log_z_mae"], r["numbers"]["log_z_mae_err"]) for r in mine]
                line += f"; here {', '.join(here)}"
            lines.append(line)
    if any(record["numbers"]["mean_error"] is not None for record in records):
        lines.append(
            "error of means: the largest of all columns, in standard deviations of the reference, raw and "
            "weighted; about 0.02 is noise of the reference"
        )
    return lines
