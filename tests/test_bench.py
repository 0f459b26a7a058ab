"""`pathgrad bench EXPERIMENT`: what is measured, and what is printed."""

import contextlib
import dataclasses
import io
import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import jax.random as jr
import pytest

import pathgrad as pg
from benchmarks.costs.images import measure_images
from pathgrad import _bench
from pathgrad._bench import gradients
from pathgrad._bench.measure import Work, measure, take_turns
from pathgrad._bench.options import MeasureOptions
from pathgrad._bench.record import duration, ratio
from pathgrad._cli.main import main
from pathgrad.experiments.vae.options import preset

# Times


def test_programs_take_turns_and_the_first_round_does_not_count():
    now, order = [0.0], []

    def program(name, seconds):
        def run(i):
            order.append((name, i))
            now[0] += seconds[i]
            return 10 * i

        return run

    runs = {"a": program("a", [100.0, 1.0, 4.0, 2.0]), "b": program("b", [100.0, 2.0, 4.0, 8.0])}
    turns = take_turns(runs, 3, clock=lambda: now[0])
    assert order == [(name, i) for i in range(4) for name in "ab"]
    assert turns == {"a": [(1.0, 10), (4.0, 20), (2.0, 30)], "b": [(2.0, 10), (4.0, 20), (8.0, 30)]}
    assert take_turns(runs, 0) == {"a": [], "b": []}


def test_ratios_of_times_are_taken_within_rounds():
    # 3, 1/3, 1/2: the ratio of medians is 1, the mean more.
    above, below = (
        {"temporary_bytes": n, "more": 0, "seconds_all": seconds}
        for n, seconds in ((6, [3.0, 1.0, 1.0]), (4, [1.0, 3.0, 2.0]))
    )
    assert ratio(above, below, ["temporary_bytes", "more"]) == {
        "seconds": {"median": 0.5, "spread": (1 / 3, 3.0)},
        "temporary_bytes": 1.5,
        "more": None,
    }
    assert [duration(s) for s in (None, 12.3, 0.0123, 4.56e-5)] == ["-", "12.3 s", "12.3 ms", "45.6 us"]


def test_only_what_is_there_is_compared():
    works = {
        "path": Work(lambda x, key: (jnp.cumsum(x), None), jnp.ones(3)),
        "total": Work(lambda x, key: (jnp.cumsum(x), None), jnp.ones(6)),
    }
    record = measure(works, 0, print)
    assert list(record["ratios"]) == ["path / total"]
    # Both beside a key of eight bytes.
    size = jnp.ones(1).nbytes
    assert record["ratios"]["path / total"]["argument_bytes"] == (3 * size) / (6 * size)
    assert record["ratios"]["path / total"]["seconds"] is None
    assert {costs["evaluations"] for costs in record["estimators"].values()} == {None}


# Commands

SMALL = "bench cnf --dim 3 --width 8 --depth 1 --solver-steps 3 --batch 4 --repetitions 2 --seed 5"


@pytest.fixture(scope="module")
def printed():
    """What `bench cnf --json` prints, and says, and the record behind it."""
    out, err, records, real = io.StringIO(), io.StringIO(), [], _bench.measure_gradients
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_bench, "measure_gradients", lambda *given: records.append(real(*given)) or records[0])
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([*SMALL.split(), "--json"])
    return code, out.getvalue(), err.getvalue(), records[0]


def test_stdout_is_one_json_object(printed):
    code, out, err, _ = printed
    record = json.loads(out)
    assert code == 0
    assert "compiling two-copy" in err
    assert record["what"] == "cnf"
    assert (record["dim"], record["batch"], record["solver_steps"], record["seed"]) == (3, 4, 3, 5)
    assert (record["divergence"], record["adjoint"]) == ("closed", "discrete")
    assert record["provenance"]["jax"] == jax.__version__
    # 3-8-3 with time and bias in each layer, and the base.
    assert record["parameters"] == 8 * 5 + 3 * 10 + 6
    assert record["dtype"] == "float32"
    path = record["estimators"]["path"]
    assert path["argument_bytes"] == 4 * record["parameters"] + 8  # and the key: all in 32 bits
    assert list(record["estimators"]) == ["path", "total", "two-copy"]
    for name, row in record["estimators"].items():
        copies = 2 if name == "two-copy" else 1
        assert row["evaluations"] == row["evaluations_backward"] == 4 * 3 * copies
        assert row["seconds_spread"] == [min(row["seconds_all"]), max(row["seconds_all"])]
        assert len(row["seconds_all"]) == 2
        assert 0 < row["seconds"] < 60
        assert min(row["temporary_bytes"], row["compile_seconds"]) > 0


def test_ratios_are_of_what_was_measured(printed):
    record = json.loads(printed[1])
    assert list(record["ratios"]) == ["path / total", "two-copy / path"]
    for name, found in record["ratios"].items():
        above, below = (record["estimators"][e] for e in name.split(" / "))
        each = [a / b for a, b in zip(above["seconds_all"], below["seconds_all"], strict=True)]
        assert found["seconds"]["median"] == pytest.approx(sum(each) / 2)
        assert found["temporary_bytes"] == above["temporary_bytes"] / below["temporary_bytes"]


def test_table_has_what_was_measured(printed, capsys, monkeypatch):
    record = json.loads(printed[1])
    monkeypatch.setattr(_bench, "measure_gradients", lambda *given: printed[-1])
    assert main(SMALL.split()) == 0
    out = capsys.readouterr().out
    assert out.startswith("target correlated, dim 3, ")
    for name, row in record["estimators"].items():
        line = next(line for line in out.splitlines() if line[2:].startswith(f"{name} "))
        assert f" {row['temporary_bytes'] / 1e6:.4g} " in line
        assert f" {row['evaluations']} + {row['evaluations_backward']} " in line
    assert f"path / total: time {record['ratios']['path / total']['seconds']['median']:.2f} [" in out


@pytest.fixture
def traced(monkeypatch):
    """Look at programs instead of measuring them: what they work on, and what they return, by estimator."""
    seen = {}

    def measure(works, repetitions, say, *, seed, **options):
        run = {n: jax.eval_shape(w.function, w.arrays, jr.key(seed)) for n, w in works.items()}
        seen.update({n: (w.arrays, run[n]) for n, w in works.items()})
        return {"estimators": {}, "ratios": {}}

    monkeypatch.setattr(gradients, "measure", measure)
    return seen


def test_lattice_gradient_is_of_the_flow_asked_for(traced, capsys):
    words = "bench phi4 --size 3 --preset paper --solver-steps 20 --divergence hutchinson --json"
    assert main([*words.split(), "--estimators", "total"]) == 0
    record = json.loads(capsys.readouterr().out)
    # A size without a coupling of its own. Three orbits of 400 taps, bonds, frequencies.
    assert (record["size"], record["batch"]) == (3, 5000)
    assert record["parameters"] == 3 * 400 + 420 + 1000 + 49
    assert (record["adjoint"], record["divergence"]) == ("backsolve", "hutchinson")
    assert list(traced) == ["total"]
    (arrays, ((value, derivative), _)) = traced["total"]
    assert (value.shape, value.dtype) == ((), jnp.float32)
    assert jax.tree.map(jnp.shape, derivative) == jax.tree.map(jnp.shape, arrays[0])


def test_autoencoder_gradient_needs_no_images(traced, capsys):
    words = "bench vae --dataset freyfaces --batch 2 --latent 3 --channels 1 --cnfs 1 --width 4"
    assert main([*words.split(), "--estimators", "path", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["dataset"], record["solver"], record["solver_steps"]) == ("freyfaces", "rk4", 3)
    (parameters, pixels), ((_, derivative), _) = traced["path"]
    assert (pixels.shape, pixels.dtype) == ((2, 28, 20), jnp.uint8)
    assert jax.tree.map(jnp.shape, derivative) == jax.tree.map(jnp.shape, parameters)


def test_own_density_is_measured_too(traced, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("def log_prob(x):\n    return -(x**2).sum()\n")
    words = "bench density mine.py:log_prob --dim 3 --width 8 --depth 1 --json"
    assert main(words.split()) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["what"], record["dim"], record["parameters"]) == ("density", 3, 8 * 5 + 3 * 10 + 6)


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("bench cnf --batch 0", "--batch must be at least 1"),
        ("bench cnf --repetitions -1", "--repetitions must be at least 0"),
        ("bench cnf --estimators path path", "each once"),
        ("bench cnf --seed -1", "--seed must be from 0"),
        ("bench cnf --dim 0", "needs at least two dimensions; got dim=0"),
        ("bench cnf --depth 3", "--divergence exact or hutchinson"),
        ("bench cnf --estimators fast", "--help explains"),
        ("bench phi4 --size 1", "at least 2 sites"),
        ("bench phi4 --preset paper --solver-steps 4", "take at least 20"),
        ("bench phi4 --preset slow", "--help explains"),
        ("bench vae --dataset cats", "Choose from: mnist"),
        ("bench vae --depth 3 --divergence closed", "--divergence exact or hutchinson"),
        ("bench nonsense", "Choose from: targets, cnf, density, fit, phi4, toy, vae."),
        ("bench cnf --solver-steps 0", "must be at least 1, got 0"),
        ("bench all --out x", "python -m benchmarks.study"),
        ("bench phi4 --rivals", "--help explains"),
    ],
)
def test_bad_options_end_in_one_line(words, remedy, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert remedy in captured.err
    assert captured.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_autoencoder_step_and_its_flow_alone():
    """As the study of images measures them."""
    options = preset("paper", "freyfaces")
    flow = dataclasses.replace(options.flow, cnfs=1, width=4, rank=2)
    training = dataclasses.replace(options.training, batch=2)
    network = dataclasses.replace(options.network, channels=1)
    options = dataclasses.replace(options, latent=3, network=network, flow=flow, training=training)
    record = measure_images(options, MeasureOptions(("path",), 1), print)
    assert record["images"] == "random, 28x20 pixels"
    assert record["solver_steps"] is None
    step, alone = (part["estimators"]["path"] for part in (record, record["flow_alone"]))
    assert step["evaluations"] % 6 == 1  # Dopri5: six a step, and one to begin with
    assert step["evaluations_backward"] % 6 == 0
    assert step["temporary_bytes"] > 10 * alone["temporary_bytes"] > 0


def test_help_needs_no_jax():
    """It answers at once: what measures is imported when it is called."""
    words = ["bench", "cnf", "--help"]
    code = f"""import sys; from pathgrad._cli.main import main
try: main({words!r})
finally: sys.exit('jax' in sys.modules)"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (found.returncode, "--solver-steps" in found.stdout) == (0, True)


def test_measure_options_say_what_they_take():
    MeasureOptions(("path",), 0).check()
    with pytest.raises(pg.UserError, match="one or more"):
        MeasureOptions(estimators=()).check()
