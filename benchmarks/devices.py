"""Time a training on one device, on two, and in two processes, with the same draws.

    python -m benchmarks.devices --out results/bench/devices.json
    python -m benchmarks.devices --datasets mnist freyfaces --out results/vae/devices.json

The first command trains lattice flows, the second autoencoders, in one process only. The times are those
that `pathgrad train` logs, after the first block. The settings take turns, so that
other work on the machine slows all of them alike. A process with one CPU device already uses several cores,
so it is also timed on a single core.
"""

import argparse
import itertools
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pathgrad._runs.provenance import provenance
from pathgrad._runs.rundir import RunDir

# Number of processes, devices in each of them, and the cores that each of them may use.
WAYS = {
    "one process, one core": (1, 1, [{0}]),
    "one process, both cores": (1, 1, [{0, 1}]),
    "one process, two devices": (1, 2, [{0, 1}]),
    "two processes, a core each": (2, 1, [{0}, {1}]),
}


def train(way: str, out: Path, words: Sequence[str]) -> float:
    """Train, and return the time of a step in seconds."""
    processes, devices, cores = WAYS[way]
    command = [sys.executable, "-m", "pathgrad", "train", *words, "--out", str(out)]
    command += ["--checkpoint-seconds", "1000"]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    if processes > 1:
        command += ["--coordinator", address, "--processes", str(processes)]
    started = [
        subprocess.Popen(
            command + (["--process-id", str(i)] if processes > 1 else []),
            env=os.environ | {"JAX_NUM_CPU_DEVICES": str(devices)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=lambda own=own: os.sched_setaffinity(0, own),
        )
        for i, own in enumerate(cores)
    ]
    codes = [process.wait() for process in started]
    if any(codes):
        raise SystemExit(f"{way}: a process failed; {' '.join(command)}")
    rows = RunDir.open(out).read_metrics()
    return (rows[-1].seconds - rows[0].seconds) / (rows[-1].step - rows[0].step)


def main() -> None:
    """Measure, and write the results as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/bench/devices.json"))
    parser.add_argument("--sizes", type=int, nargs="+", default=[8])
    parser.add_argument("--batches", type=int, nargs="+", default=[128, 1024])
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--datasets", nargs="*", default=[], help="autoencoders of these instead of lattices")
    parser.add_argument("--seconds", type=float, default=15.0, help="time of a training of autoencoders")
    parser.add_argument("--repetitions", type=int, default=5)
    given = parser.parse_args()
    if given.datasets:
        settings = [
            ({"dataset": name}, ["vae", "--dataset", name, "--max-seconds", str(given.seconds)])
            for name in given.datasets
        ]
    else:
        block = ["--steps", str(given.steps), "--block", str(given.steps // 6)]
        settings = [
            (
                {"size": size, "batch": batch, "steps": given.steps},
                ["phi4", "--size", str(size), "--batch", str(batch), *block],
            )
            for size, batch in itertools.product(given.sizes, given.batches)
        ]
    ways = [way for way, (processes, *_) in WAYS.items() if processes == 1 or not given.datasets]
    rows = []
    for setting, words in settings:
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        with tempfile.TemporaryDirectory() as folder:
            for i, way in itertools.product(range(given.repetitions), ways):
                seconds[way].append(train(way, Path(folder) / f"{i}-{way}", words))
                print(*setting.values(), way, f"{seconds[way][-1] * 1e3:.2f} ms", file=sys.stderr)
        base = seconds["one process, one core"]
        rows.append(
            {
                **setting,
                "seconds": seconds,
                "median_seconds": {way: statistics.median(s) for way, s in seconds.items()},
                "speedup_over_one_core": {
                    way: {
                        "median": statistics.median(b / a for a, b in zip(s, base, strict=True)),
                        "spread": [
                            min(b / a for a, b in zip(s, base, strict=True)),
                            max(b / a for a, b in zip(s, base, strict=True)),
                        ],
                    }
                    for way, s in seconds.items()
                },
            }
        )
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps({"rows": rows, "provenance": provenance()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
