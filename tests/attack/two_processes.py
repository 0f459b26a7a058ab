"""Kill one of two processes that train together, resume both, again and again."""

import collections
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

_WORDS = ["train", "toy", "--target", "banana", "--width", "8", "--depth", "1", "--solver-steps", "3"]
_WORDS += ["--batch", "16", "--block", "5", "--checkpoint-seconds", "0"]
_SECONDS = 300  # for anything
_BETWEEN = 60  # steps between two kills


def free_port() -> int:
    """Return a port on which nobody listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(out: Path, steps: int, *, resume: bool) -> list[subprocess.Popen[str]]:
    """Start both processes."""
    words = [*_WORDS, "--steps", str(steps), "--out", str(out), *(["--resume"] if resume else [])]
    words += ["--coordinator", f"127.0.0.1:{free_port()}", "--processes", "2"]
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1"}
    return [
        subprocess.Popen(
            [sys.executable, "-m", "pathgrad", *words, "--process-id", str(i)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
        for i in range(2)
    ]


def last_step(out: Path) -> int:
    """Return the step of the newest checkpoint."""
    return max((int(path.stem[5:]) for path in out.glob("checkpoints/step-*.safetensors")), default=-1)


def wait(processes: list[subprocess.Popen[str]]) -> tuple[list[int], list[str]]:
    """Return the exit codes, and what was said."""
    said = [process.communicate(timeout=_SECONDS)[0] for process in processes]
    return [process.returncode for process in processes], said


def reaches(out: Path, step: int, processes: list[subprocess.Popen[str]]) -> bool:
    """Wait for a step; return whether both processes live then."""
    deadline = time.monotonic() + _SECONDS
    while last_step(out) < step and time.monotonic() < deadline:
        if any(process.poll() is not None for process in processes):
            return False
        time.sleep(0.01)
    return last_step(out) >= step


def kill_one_of_two(kills: int, rng: np.random.Generator, folder: Path) -> dict[str, Any]:
    """Kill so many times, resume so many times, and compare with two processes that were left alone."""
    from .kills import difference, numbers_of

    steps, out, began = _BETWEEN * (kills + 1), folder / "broken", time.monotonic()
    codes, said = wait(start(folder / "whole", steps, resume=False))
    if codes != [0, 0]:
        raise RuntimeError(said)
    failures: list[Any] = []
    after: collections.Counter[str] = collections.Counter()
    resumes = -1
    for kill in range(kills):
        processes = start(out, steps, resume=resumes >= 0)
        resumes += 1
        aim = max(last_step(out), 0) + int(rng.integers(5, _BETWEEN - 20))
        if not reaches(out, aim, processes):
            failures.append({"resume": resumes, "ended by itself": wait(processes)})
            continue
        victim = int(rng.integers(2))
        processes[victim].send_signal(signal.SIGKILL)
        codes, said = wait(processes)
        after[f"process {victim} killed, the other ended with {codes[1 - victim]}"] += 1
        print(f"kill {kill}: process {victim} at step {last_step(out)}, codes {codes}", flush=True)
    codes, said = wait(start(out, steps, resume=True))
    resumes += 1
    if codes != [0, 0]:
        failures.append({"resume": resumes, "codes": codes, "said": said})
    found = difference(numbers_of(out), numbers_of(folder / "whole"))
    return {
        "kills": sum(after.values()),
        "resumes": resumes,
        "resumes that failed": failures,
        "differences": [found] if found else [],
        "after a kill": dict(after),
        "seconds": round(time.monotonic() - began),
    }
