"""Kill a training at any moment, interrupt it, and find the same bits at the end."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from pathgrad._runs.checkpoint import read_header

TINY = ["--width", "8", "--depth", "1", "--solver-steps", "3", "--batch", "16"]


def start(out: Path, *more: str) -> subprocess.Popen:
    # Small blocks and a checkpoint after each: many moments to be killed at.
    words = ["train", "toy", "--target", "banana", *TINY, "--steps", "3000", "--block", "50"]
    return subprocess.Popen(
        [sys.executable, "-m", "pathgrad", *words, "--out", str(out), "--checkpoint-seconds", "0", *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )


def wait_for_checkpoints(out: Path, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 120
    while not list(out.glob("checkpoints/*.safetensors")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_killed_and_interrupted_runs_resume_to_the_same_bits(tmp_path):
    whole = start(tmp_path / "whole")
    out = tmp_path / "broken"
    process = start(out)
    wait_for_checkpoints(out, process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    done = read_header(max(out.glob("checkpoints/*.safetensors"))).step
    assert done < 3000, "the run was over before it could be killed"

    process = start(out, "--resume")
    wait_for_checkpoints(out, process)
    while read_header(max(out.glob("checkpoints/*.safetensors"))).step <= done:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "--resume" in err
    assert "Traceback" not in err

    process = start(out, "--resume")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    _, err = whole.communicate(timeout=120)
    assert whole.returncode == 0, err

    def last(run):
        return read_header(max((tmp_path / run).glob("checkpoints/*.safetensors")))

    assert last("broken").step == last("whole").step == 3000
    assert last("broken").sha256 == last("whole").sha256  # every parameter, every optimiser moment

    def rows(run):
        lines = (tmp_path / run / "metrics.jsonl").read_text().splitlines()
        return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]

    assert rows("broken") == rows("whole")
