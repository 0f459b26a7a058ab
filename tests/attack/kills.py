"""Kill real processes inside their file operations, resume them, and compare with runs that were left alone.

    python -m tests.attack.kills --kills 100 --seed 0 --out results/trust/kills.json
    python -m tests.attack.kills --only two-processes --kills 10 --seed 0 --out results/trust/two.json

Each process is a fork of this one, which has imported everything and has not begun to compute. It is killed
with SIGKILL at a moment drawn from those that a run left alone passes (`killing.Moments`), or goes on to its
end; what was killed is started again as its user would. Some are killed again while they resume. Programs are
compiled into a cache (JAX_COMPILATION_CACHE_DIR), since compiling is most of the work.
"""

import argparse
import collections
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pathgrad._cli.main import main as command
from pathgrad._runs.files import TEMPORARY, write_atomically
from pathgrad._runs.provenance import provenance

from .cases import CASES, DENSITY, Case, start_clean
from .killing import Moments, by_signal
from .two_processes import kill_one_of_two

# What may differ between two runs: times, and how long a round was planned before their number was known.
_TIMES = {"seconds", "planned_steps", "provenance", "run", "seconds_before"}
_TRIES = 12  # processes for one run


def forked(words: Sequence[str], case: Case, folder: Path, at: int | None) -> tuple[int, int]:
    """Run a command in a fork; return its exit code (-9: killed) and how many moments it passed."""
    told, log = folder / "moments", folder / "log"
    told.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        code = 70
        try:
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(output, 1)
            os.dup2(output, 2)
            case.prepare()
            with Moments(folder / "runs", at, by_signal).watched() as moments:
                code = command(list(words))
            told.write_text(str(moments.count))
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), int(told.read_text()) if told.exists() else 0


def numbers_of(path: Path) -> Any:
    """Return everything that must be the same in two runs: bits of all states, metrics, options, results."""
    from pathgrad._runs.checkpoint import read_header

    found: dict[str, Any] = {}
    for file in sorted(path.rglob("*")):
        name = str(file.relative_to(path))
        if TEMPORARY.fullmatch(file.name):
            found[f"left: {file.parent.name}"] = file.name.partition(".tmp")[2]
        elif file.suffix == ".safetensors":  # the newest one: how many are before it depends on the breaks
            header = read_header(file)
            found[str(file.parent.relative_to(path))] = (header.step, header.sha256)
        elif file.name == "metrics.jsonl":
            rows = [json.loads(line) for line in file.read_text().splitlines()]
            found[name] = [{k: v for k, v in row.items() if k not in _TIMES} for row in rows]
        elif file.name == "evaluation.json":
            found[name] = {k: v for k, v in json.loads(file.read_text()).items() if k not in _TIMES}
        elif file.suffix == ".npz":
            with np.load(file) as arrays:
                found[name] = {n: (arrays[n].dtype.str, arrays[n].tobytes().hex()) for n in arrays.files}
        elif file.is_file() and file.name not in ("lock", ".outputs", "config.toml"):
            found[name] = "is there"
    return found


def difference(one: Any, other: Any) -> str | None:
    """Return in which files two runs differ."""
    names = [name for name in {**one, **other} if one.get(name) != other.get(name)]
    return ", ".join(sorted(names)) or None


class Attack:
    """Runs of one case that are killed, and the one that is left alone."""

    def __init__(self, case: Case, folder: Path, rng: np.random.Generator) -> None:
        self.case, self.folder, self.rng = case, folder, rng
        self.kills, self.finished, self.moments = 0, 0, 0
        self.differences: list[str] = []
        folder.mkdir(parents=True)
        (folder / "dens.py").write_text(DENSITY)

    def run(self, name: str, kills: Sequence[int]) -> Path:
        """Run to the end; be killed at these moments of the first processes."""
        path = self.folder / "runs" / name
        self.case.setup(path, self.folder / "runs" / "prepared")
        for attempt in range(_TRIES):
            at = kills[attempt] if attempt < len(kills) else None
            code, count = forked(self.case.words(path), self.case, self.folder, at)
            if code == 0:
                self.moments = self.moments or count
                return path
            if code != -signal.SIGKILL:
                raise RuntimeError(f"{self.case.name}: exit code {code}\n{(self.folder / 'log').read_text()}")
            self.kills += 1
        raise RuntimeError(f"{self.case.name}: not done after {_TRIES} processes")

    def attack(self, kills: int) -> None:
        """Kill so many processes, and compare each run that ends."""
        os.chdir(self.folder)
        if self.case.is_prepared:
            self.case.prepared_by(self, self.folder / "runs" / "prepared")
        whole = self.run("whole", [])
        while self.kills < kills:
            moments = self.rng.integers(0, self.moments, size=self.rng.integers(1, 3)).tolist()
            name = f"run{self.finished}"
            path = self.run(name, moments[: kills - self.kills])
            compared = whole if not self.case.is_decided_by_clock else self._repeated(path)
            found = difference(numbers_of(path), numbers_of(compared))
            self.differences += [f"{self.case.name}, killed at {moments}: {found}"] if found else []
            self.finished += 1
            shutil.rmtree(path)

    def _repeated(self, path: Path) -> Path:
        """Return a run left alone with the decisions of this one: it begins with its configuration only."""
        again = self.folder / "runs" / "again"
        shutil.rmtree(again, ignore_errors=True)
        again.mkdir()
        shutil.copy(path / "config.toml", again)
        code, _ = forked(self.case.words(again), self.case, self.folder, None)
        if code:
            raise RuntimeError((self.folder / "log").read_text())
        return again


def attack_all(only: str | None, kills: int, seed: int, folder: Path) -> dict[str, Any]:
    """Attack some cases, in shares of the kills, and return the record."""
    cases = [case for case in CASES if only in (None, case.name)]
    whole = sum(case.share for case in cases)
    rows, differences, began = [], [], time.monotonic()
    left, shares = kills, collections.deque(case.share for case in cases)
    for i, case in enumerate(cases):
        mine = round(left * shares.popleft() / whole) if i + 1 < len(cases) else left
        whole, left = whole - case.share, left - mine
        attack = Attack(case, folder / case.name, np.random.default_rng([seed, i]))
        try:
            attack.attack(mine)
        except RuntimeError as error:  # the other cases go on
            attack.differences.append(str(error))
        row = {"case": case.name, "kills": attack.kills, "finished runs": attack.finished}
        rows.append(row | {"moments of a run": attack.moments, "differences": len(attack.differences)})
        differences += attack.differences
        print(json.dumps(rows[-1]), flush=True)
    return {
        "kills": sum(row["kills"] for row in rows),
        "finished_runs": sum(row["finished runs"] for row in rows),
        "differences": differences,
        "seconds": round(time.monotonic() - began),
        "cases": rows,
    }


def main() -> None:
    """Attack, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=[*(case.name for case in CASES), "two-processes"])
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    out = given.out.absolute()
    out.parent.mkdir(parents=True, exist_ok=True)
    start_clean()
    record = {"seed": given.seed, "provenance": provenance()}
    with tempfile.TemporaryDirectory() as folder:
        if given.only == "two-processes":
            record |= kill_one_of_two(given.kills, np.random.default_rng(given.seed), Path(folder))
        else:
            record |= attack_all(given.only, given.kills, given.seed, Path(folder).resolve())
        os.chdir("/")
    write_atomically(out, [(json.dumps(record, indent=1) + "\n").encode()])


if __name__ == "__main__":
    main()
