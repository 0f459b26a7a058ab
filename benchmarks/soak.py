"""Train, evaluate, draw and report in a loop, and record memory, open files and files left.

    python -m benchmarks.soak --minutes 30 --out results/trust/soak.json

Everything happens in one process: a training through the library, an evaluation, draws, and the same by
command lines. Every so often a command runs in a process of its own, in the same directories, and one that is
killed at once after it has begun. A leak of any kind shows as a number that grows.
"""

import argparse
import contextlib
import ctypes
import gc
import io
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pathgrad as pg
from pathgrad._cli.main import main as command
from pathgrad._runs.files import write_atomically
from pathgrad._runs.provenance import provenance
from pathgrad.experiments.options import FlowOptions, TrainOptions
from pathgrad.experiments.toy.experiment import TOY, ToyOptions

_OWN_PROCESS = 25  # rounds between two commands in a process of their own
_ROWS = 60  # of the record


def rss_mb() -> int:
    """Return the memory of this process (Linux)."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmRSS"].split()[0]) // 1024


def numbers() -> dict[str, int]:
    """Return what this process holds; `used_mb` is without the free memory that the allocator keeps."""
    gc.collect()
    before = rss_mb()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    return {
        "rss_mb": before,
        "used_mb": rss_mb(),
        "open_files": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "mappings": Path("/proc/self/maps").read_bytes().count(b"\n"),
    }


def files_in(folder: Path) -> list[str]:
    """Return the files below a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def quietly(*words: str) -> None:
    """Run a command line in this process; raise unless it ends well."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = command(words)
    if code:
        raise RuntimeError(f"{words}: exit code {code}\n{said.getvalue()}")


def once(folder: Path, seed: int) -> None:
    """Do everything once, over what is there from the time before."""
    training = TrainOptions(steps=20, block=5, batch=16, seed=seed)
    options = ToyOptions("banana", flow=FlowOptions(width=8, depth=1, solver_steps=3), training=training)
    run = pg.train(TOY, options, out=folder / "api", overwrite=True, checkpoint_seconds=0)
    run.evaluate(samples=256, mode_search=False)
    run.sample(64)
    tiny = ["--width", "8", "--depth", "1", "--solver-steps", "3", "--batch", "16", "--block", "5"]
    line = str(folder / "line")
    quietly("train", "toy", *tiny, "--steps", "10", "--seed", str(seed), "--out", line, "--overwrite")
    quietly("train", "toy", "--out", line, "--resume", "--steps", "20")
    quietly("evaluate", line, "--samples", "256", "--no-mode-search")
    quietly("sample", line, "--n", "64", "--out", str(folder / "draws.npz"), "--overwrite")
    quietly("plot", line, "--out", str(folder / "plot.png"))
    quietly("report", str(folder / "api"), line, "--out", str(folder / "report.html"))


def apart(folder: Path) -> None:
    """Evaluate in a process of its own; before that, kill one that does."""
    words = [sys.executable, "-m", "pathgrad", "evaluate", str(folder / "line"), "--samples", "256"]
    killed = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(4)
    killed.kill()
    killed.wait()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def thinned(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return some of the rows, with the first and the last."""
    step = max(1, len(rows) // _ROWS)
    return [*rows[:-1:step], rows[-1]]


def soak(minutes: float, folder: Path) -> dict[str, Any]:
    """Return what was recorded."""
    rows: list[dict[str, Any]] = []
    began, rounds = time.monotonic(), 0
    while time.monotonic() - began < 60 * minutes:
        once(folder, rounds)
        if rounds % _OWN_PROCESS == 0:
            apart(folder)
        rounds += 1
        files = files_in(folder)
        row = {"round": rounds, "seconds": round(time.monotonic() - began), **numbers(), "files": len(files)}
        rows.append(row)
        print(json.dumps(row), flush=True)
    return {"rounds": rounds, "rows": thinned(rows), "files_at_end": files_in(folder)}


def main() -> None:
    """Soak, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        record = soak(given.minutes, Path(folder))
    text = json.dumps({"minutes": given.minutes, **record, "provenance": provenance()}, indent=1) + "\n"
    write_atomically(given.out, [text.encode()])


if __name__ == "__main__":
    main()
