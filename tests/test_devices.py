"""A batch shared by devices and by processes gives what one device gives."""

import functools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import pathgrad as pg
from pathgrad._cli.main import main
from pathgrad._cli.processes import Processes
from pathgrad._train.blocks import BlockGradients

ROOT = Path(__file__).parent.parent
TINY = ["--width", "8", "--depth", "1", "--solver-steps", "3", "--batch", "16"]
SECONDS = 240  # a busy machine compiles slowly


def environment(**more):
    """Without what would make these processes part of a cluster."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "OMPI_"))}
    return kept | {"JAX_PLATFORMS": "cpu"} | more


@functools.cache
def run_with_two_devices():
    done = subprocess.run(
        [sys.executable, "-m", "tests.two_devices"],
        cwd=ROOT,
        env=environment(JAX_NUM_CPU_DEVICES="2"),
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def two_devices():
    return run_with_two_devices()


@pytest.mark.parametrize("case", ["fixed", "adaptive"])
def test_two_devices_train_to_the_parameters_of_one(two_devices, case):
    found = two_devices[case]
    assert found["moved"] > 0.05
    assert found["parameters"] < 1e-9
    assert max(found["rows"]) < 1e-6
    assert found["devices_of_result"] == 1  # what the user goes on with is an ordinary flow


def test_two_devices_evaluate_the_draws_of_one(two_devices):
    found = two_devices["evaluation"]
    assert found["shape"] == [33, 2]  # an odd number, of which each makes its part
    assert max(found["x"], found["log_weight"]) < 1e-12
    assert set(found["shared_by"]) == {2}


def test_the_work_is_really_shared(two_devices):
    found = two_devices["sharing"]
    assert found["devices"] == [2, 2]
    assert found["reductions"] >= 1
    assert found["reductions"] + found["gathers"] <= 3  # a step, whatever the steps of its solves
    assert found["second"] == [1]  # where it was asked to be
    assert found["stages"] == [[2, 2], [1, 1]]  # Adam on both, then Gauss-Newton on one


def test_two_devices_share_the_images_of_an_autoencoder(two_devices):
    found = two_devices["autoencoder"]
    assert found["moved"] > 1e-3
    assert found["parameters"] < 1e-6
    assert max([*found["rows"], found["bound"], found["likelihood"]]) < 1e-6
    assert found["devices"] == [1, 2]


def test_as_many_devices_as_the_draws_can_be_divided_by(two_devices):
    assert two_devices["meshes"] == {"7": 1, "8": 2}
    assert pg.devices.mesh_for(8) is None  # there is one device here
    two_processes = [SimpleNamespace(process_index=i) for i in range(2)]
    with pytest.raises(pg.UserError, match="Use a batch of 6 or 8"):
        pg.devices.mesh_for(7, two_processes)
    with pytest.raises(pg.UserError, match="Use a batch of 2"):
        pg.devices.mesh_for(1, two_processes)
    with pytest.raises(ValueError, match="at least one"):
        pg.devices.mesh_for(8, [])


def test_a_key_for_each_draw():
    flow = pg.Flow(pg.StandardNormal((2,)))
    keys = jr.split(jr.key(0), 6)
    apart = [flow.draw("log_q", key=keys[i : i + 2], n=2).x for i in (0, 2, 4)]
    np.testing.assert_array_equal(np.concatenate(apart), flow.sample(key=jr.key(0), n=6))
    with pytest.raises(ValueError, match="one key, or 3"):
        flow.draw("x", key=keys, n=3)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start_two(out, *more):
    words = [
        "train",
        "toy",
        "--target",
        "banana",
        *TINY,
        "--block",
        "5",
        "--decay",
        "none",
        "--out",
        str(out),
    ]
    words += ["--checkpoint-seconds", "0"]
    words += ["--coordinator", f"127.0.0.1:{free_port()}", "--processes", "2"]
    return [
        subprocess.Popen(
            [sys.executable, "-m", "pathgrad", *words, *more, "--process-id", str(i)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        for i in range(2)
    ]


def wait_for_step(out, step, processes):
    deadline = time.monotonic() + SECONDS
    while not any(int(p.stem[5:]) >= step for p in out.glob("checkpoints/step-*.safetensors")):
        assert all(p.poll() is None for p in processes), [p.communicate() for p in processes]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def last_step(out):
    return int(max(out.glob("checkpoints/*.safetensors")).stem[5:])


@pytest.mark.slow
def test_two_processes_train_to_the_parameters_of_one_even_if_one_is_killed(tmp_path):
    out = tmp_path / "two"
    processes = start_two(out, "--steps", "1000000")
    wait_for_step(out, 10, processes)
    processes[1].send_signal(signal.SIGTERM)  # to one of them
    said = [p.communicate(timeout=60)[1] for p in processes]
    assert [p.returncode for p in processes] == [130, 130], said
    assert "stopped at step" in said[0]
    assert "stopp" not in said[1]  # the second one is silent

    first, second = start_two(out, "--resume")
    wait_for_step(out, last_step(out) + 5, [first, second])
    second.send_signal(signal.SIGKILL)
    killed = time.monotonic()
    _, err = first.communicate(timeout=60)
    assert time.monotonic() - killed < 30
    assert first.returncode == 1
    assert "another process of this job has ended" in err
    assert "--resume" in err
    assert "Traceback" not in err
    second.communicate()

    steps = last_step(out) + 20
    processes = start_two(out, "--resume", "--steps", str(steps))
    said = [p.communicate(timeout=SECONDS) for p in processes]
    assert [p.returncode for p in processes] == [0, 0], said
    assert f"{steps} steps in" in said[0][0]
    assert "2 cpu devices" in said[0][0]
    assert "steps" not in said[1][0]  # the second one is silent
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(5, steps + 1, 5))

    alone = tmp_path / "one"
    words = ["train", "toy", "--target", "banana", *TINY, "--block", "5", "--decay", "none"]
    with jax.enable_x64(False):  # as in the processes
        assert main([*words, "--steps", str(steps), "--out", str(alone)]) == 0
        flows = [pg.Run.open(path).flow() for path in (out, alone)]
    two, one = ([np.asarray(x) for x in jax.tree.leaves(eqx.filter(f, eqx.is_array))] for f in flows)
    for a, b in zip(two, one, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


LATE = """
import sys, time
from pathgrad._cli.main import main
from pathgrad._runs import session

held = session._held

def late(*given, **more):
    time.sleep(40)
    return held(*given, **more)

session._held = late
sys.exit(main())
"""


@pytest.mark.slow
def test_a_process_that_is_late_is_waited_for(tmp_path, monkeypatch):
    # XLA gives up the first exchange after 30 s, and the process that comes then is aborted.
    popen = subprocess.Popen

    def start_late(words, **how):
        is_second = words[-1] == "1"
        return popen([words[0], "-c", LATE, *words[3:]] if is_second else words, **how)

    monkeypatch.setattr(subprocess, "Popen", start_late)
    processes = start_two(tmp_path / "two", "--steps", "5")
    said = [p.communicate(timeout=SECONDS) for p in processes]
    assert [p.returncode for p in processes] == [0, 0], said


def test_processes_that_cannot_begin_all_end(tmp_path):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis.tex").touch()
    processes = start_two(tmp_path / "taken", "--steps", "5")
    said = [p.communicate(timeout=SECONDS)[1] for p in processes]
    assert [p.returncode for p in processes] == [2, 2], said
    assert "is not a run directory" in said[0]
    assert "The first process could not start" in said[1]


@pytest.mark.parametrize(("given", "expected"), [({}, 2), ({"JAX_NUM_CPU_DEVICES": "3"}, 3)])
def test_the_cpu_is_split_unless_the_environment_decides(given, expected):
    code = "import pathgrad as pg; pg.devices.split_cpu(2); print(pg.devices.number_in_all())"
    command = [sys.executable, "-c", code]
    kept = {k: v for k, v in environment(**given).items() if k in given or k != "JAX_NUM_CPU_DEVICES"}
    done = subprocess.run(command, env=kept, capture_output=True, text=True, timeout=SECONDS)
    assert done.stdout.strip() == str(expected), done.stderr


def test_how_many_devices_a_cpu_counts_as(monkeypatch):
    counts = []
    monkeypatch.setattr(pg.devices, "split_cpu", counts.append)
    monkeypatch.setattr(pg.devices, "cores", lambda: 4)
    images, lattice = pg.find_experiment("vae"), pg.find_experiment("phi4")
    Processes().split_cpu(images, None, None)
    Processes().split_cpu(lattice, None, None)
    Processes().split_cpu(images, None, 3)  # resumed
    Processes().split_cpu(images, 5, 3)
    monkeypatch.setattr(pg.devices, "cores", lambda: 1)
    Processes().split_cpu(images, None, None)
    assert counts == [2, 1, 3, 5, 1]
    Processes("localhost:1", 2, 0).split_cpu(images, 2, None)  # each of several processes has its own
    assert len(counts) == 5
    with pytest.raises(pg.UserError, match="--cpu-devices must be at least 1, got 0"):
        Processes().split_cpu(images, 0, None)


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        ({"processes": 2, "process_id": 0}, "--coordinator HOST:PORT"),
        ({"coordinator": "somewhere", "processes": 2, "process_id": 0}, "--coordinator HOST:PORT"),
        ({"coordinator": "localhost:1"}, "needs --processes and --process-id"),
        ({"coordinator": "localhost:1", "processes": 2, "process_id": 2}, "from 0 to 1"),
    ],
)
def test_incomplete_addresses_are_refused(given, remedy):
    with pytest.raises(pg.UserError, match=remedy):
        Processes(**given).join()


def test_a_launcher_is_recognised_by_more_than_one_task(monkeypatch):
    joined = []
    monkeypatch.setattr(jax.distributed, "initialize", lambda *a, **k: joined.append(a))
    for name in list(os.environ):
        if name.startswith(("SLURM_", "OMPI_")):
            monkeypatch.delenv(name)
    Processes().join()
    # A script in an allocation of eight tasks is one process; `srun` makes the steps.
    allocation = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "8", "SLURM_PROCID": "0"}
    for name, value in allocation.items():
        monkeypatch.setenv(name, value)
    Processes().join()
    monkeypatch.setenv("SLURM_STEP_NODELIST", "node[1-2]")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "1")
    Processes().join()
    assert joined == []
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "8")
    Processes().join()
    assert joined == [(None, None, None)]  # JAX finds out the rest
    Processes(processes=1).join()
    for name in allocation | {"SLURM_STEP_NODELIST": "", "SLURM_STEP_NUM_TASKS": ""}:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    Processes().join()  # of Open MPI 5, which JAX cannot read
    assert len(joined) == 1
    monkeypatch.setenv("OMPI_MCA_orte_hnp_uri", "1531576320.0;tcp://10.96.0.1:34911")
    Processes().join()
    assert len(joined) == 2


def test_signal_to_noise_of_a_block_is_that_of_its_gradients():
    keys = jr.split(jr.key(0), 6)
    gradients = [{"a": 3.0 + jr.normal(key, (4,)), "b": jr.uniform(key, ())} for key in keys]
    block = BlockGradients.none(gradients[0])
    for i, gradient in enumerate(gradients):
        block = block.add(gradient, jnp.asarray(True))
        if i == 2:  # a step that was skipped
            block = block.add(jax.tree.map(lambda x: x * jnp.nan, gradient), jnp.asarray(False))
        assert np.isfinite(block.snr()) == (i > 0)
    stacked = jax.tree.map(lambda *g: jnp.stack(g), *gradients)
    np.testing.assert_allclose(block.snr(), pg.metrics.gradient_snr(stacked), rtol=1e-12)
