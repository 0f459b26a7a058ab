"""`pathgrad bench cnf|phi4|vae`: what is counted, what is timed, and what is printed."""

import contextlib
import io
import json

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import pytest
from jax import lax

import pathgrad as pg
from pathgrad._bench import gradients, images, rivals
from pathgrad._bench.flops import count_flops, flops_of
from pathgrad._bench.gradients import cnf_problem, precision, training_gradient
from pathgrad._bench.options import CnfOptions, MeasureOptions
from pathgrad._bench.turns import median_and_spread, ratio, take_turns
from pathgrad._cli import bench
from pathgrad._cli.main import main
from pathgrad.experiments.options import FlowOptions

# FLOPs


def product(x, w):
    return jnp.tanh(x @ w)  # no FLOPs but those of the product: tanh is counted apart


@pytest.mark.parametrize("length", [1, 2, 3, 8])
def test_a_scan_counts_as_often_as_it_runs(length):
    x, w = jnp.ones((5, 16)), jnp.ones((length, 16, 16))
    found = count_flops(lambda x, w: lax.scan(lambda x, w: (product(x, w), None), x, w)[0], x, w)
    once = 2 * 5 * 16 * 16
    # The compiler also counts the loop's counter.
    assert found.whole == pytest.approx(length * once, rel=5e-3)
    assert found.program == pytest.approx(once, rel=5e-3)
    assert found.bodies == pytest.approx(once if length > 1 else 0, rel=5e-3)


def test_a_while_counts_as_often_as_it_ran():
    def program(x, w, stop):
        def go_on(carry):
            return jnp.sum(carry[0]) < stop

        # Behind a call, as in most programs, and with a second loop that is longer.
        y, n = jax.jit(
            lambda x: lax.while_loop(go_on, lambda c: (c[0] + c[0] @ w, c[1] + 1), (x, 0))
        )(x)
        return lax.fori_loop(0, 7, lambda _, y: jnp.tanh(y @ w), y), n

    x, w = jnp.ones((4, 8)) / 32, jnp.eye(8)  # the sum is 1, and doubles
    _, n = program(x, w, 20.0)
    assert int(n) == 5
    found = count_flops(program, x, w, 20.0)
    once = 2 * 4 * 8 * 8
    assert found.whole == pytest.approx((5 + 7) * once, rel=0.15)  # the sums and additions
    assert found.program == pytest.approx(2 * once, rel=0.15)


def test_flops_of_a_solve_are_those_of_its_matrix_products():
    dim, width, batch, steps = 8, 64, 16, 9
    field = pg.MLPField(dim, width, 2, key=jr.key(0))
    flow = pg.Flow(pg.StandardNormal((dim,)), [pg.CNF(field, integrator=pg.FixedStep(steps))])
    arrays, static = eqx.partition(flow, eqx.is_array)

    def sample(arrays, key):
        return eqx.combine(arrays, static).draw("x", key=key, n=batch, chunk=batch).x

    evaluation = 2 * batch * (dim * width + width * width + width * dim)
    assert count_flops(sample, arrays, jr.key(0)).whole == pytest.approx(
        4 * steps * evaluation, rel=0.05
    )


def gradient(steps, batch):
    flow = FlowOptions(width=64, solver_steps=steps, divergence="hutchinson")
    return training_gradient(*cnf_problem(CnfOptions(8, flow)), pg.PathGradient(), batch)


def test_flops_of_a_gradient_grow_with_steps_and_batch():
    with precision("float32"):
        work, larger = gradient(5, 16), gradient(25, 32)
        few, many = (count_flops(w.function, w.arrays, jr.key(0)) for w in (work, larger))
        compiled = jax.jit(work.function).lower(work.arrays, jr.key(0)).compile()
    assert few.program == pytest.approx(flops_of(compiled), rel=2e-3)
    # Twice the draws; of five times the steps the compiler sees nothing.
    assert many.program == pytest.approx(2 * few.program, rel=0.02)
    assert few.whole == pytest.approx(few.program + 4 * few.bodies)
    assert many.whole == pytest.approx(2 * (few.whole + 20 * few.bodies), rel=0.02)
    # There: velocity, its push-forward, and the way back of both. Back: once more, and two products each.
    velocity = 2 * 16 * (8 * 64 + 64 * 64 + 64 * 8)
    assert few.bodies / (4 * velocity) == pytest.approx(6.95, rel=0.08)


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
    seconds, returned = take_turns(runs, 3, clock=lambda: now[0])
    assert order == [(name, i) for i in range(4) for name in "ab"]
    assert seconds == {"a": [1.0, 4.0, 2.0], "b": [2.0, 4.0, 8.0]}
    assert returned == {"a": [10, 20, 30], "b": [10, 20, 30]}
    assert median_and_spread(seconds["b"]) == {"median": 4.0, "spread": [2.0, 8.0]}
    # 1/2, 1, 1/4: neither the ratio of medians, which were 1/2 too, nor a mean.
    assert ratio(seconds["b"], seconds["a"]) == {"median": 2.0, "spread": [1.0, 4.0]}
    assert ratio([3.0, 1.0, 1.0], [1.0, 3.0, 2.0])["median"] == 0.5
    assert take_turns(runs, 0)[0] == {"a": [], "b": []}


# Commands

SMALL = "bench cnf --dim 3 --width 8 --depth 1 --solver-steps 3 --batch 4 --repetitions 2 --seed 5"


@pytest.fixture(scope="module")
def printed():
    """What `bench cnf --json` prints, and says."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([*SMALL.split(), "--json"])
    return code, out.getvalue(), err.getvalue()


def test_stdout_is_one_json_object(printed):
    code, out, err = printed
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
        assert row["flops"] > 2 * row["flops_of_program"] > 0
        assert min(row["temporary_bytes"], row["compile_seconds"]) > 0


def test_ratios_are_of_what_was_measured(printed):
    record = json.loads(printed[1])
    assert list(record["ratios"]) == ["path / total", "two-copy / path"]
    for name, found in record["ratios"].items():
        above, below = (record["estimators"][e] for e in name.split(" / "))
        each = [a / b for a, b in zip(above["seconds_all"], below["seconds_all"], strict=True)]
        assert found["seconds"]["median"] == pytest.approx(sum(each) / 2)
        assert found["flops"] == above["flops"] / below["flops"]
        assert found["temporary_bytes"] == above["temporary_bytes"] / below["temporary_bytes"]


def test_table_has_what_was_measured(printed, capsys):
    record = json.loads(printed[1])
    bench._tell(record, as_json=False)
    out = capsys.readouterr().out
    assert out.startswith("dim 3, ")
    for name, row in record["estimators"].items():
        line = next(line for line in out.splitlines() if line[2:].startswith(f"{name} "))
        assert f" {row['flops'] / 1e9:.4g} " in line
        assert f" {row['evaluations']} + {row['evaluations_backward']} " in line
    assert (
        f"path / total: time {record['ratios']['path / total']['seconds']['median']:.2f} [" in out
    )


@pytest.fixture
def traced(monkeypatch):
    """Look at programs instead of measuring them: what they return, by kind and estimator."""
    seen = []

    def measure(works, *, repetitions, seed, say):
        del repetitions, seed, say
        run = {n: jax.eval_shape(w.function, w.arrays, jr.key(0)) for n, w in works.items()}
        seen.append({n: (w.arrays, run[n]) for n, w in works.items()})
        return {"estimators": {}, "ratios": {}}

    monkeypatch.setattr(gradients, "measure", measure)
    monkeypatch.setattr(images, "measure", measure)
    return seen


def test_lattice_gradient_is_of_the_flow_asked_for(traced, capsys):
    words = "bench phi4 --size 3 --preset paper --solver-steps 20 --divergence hutchinson --json"
    assert main([*words.split(), "--estimators", "total"]) == 0
    record = json.loads(capsys.readouterr().out)
    # A size without a coupling of its own. Three orbits of 400 taps, bonds, frequencies.
    assert (record["size"], record["volume"]) == (3, 9)
    assert record["parameters"] == 3 * 400 + 420 + 1000 + 49
    assert (record["adjoint"], record["divergence"]) == ("backsolve", "hutchinson")
    (programs,) = traced
    assert list(programs) == ["total"]
    for arrays, ((value, derivative), _) in programs.values():
        assert (value.shape, value.dtype) == ((), jnp.float32)
        assert jax.tree.map(jnp.shape, derivative) == jax.tree.map(jnp.shape, arrays)


def test_autoencoder_has_a_step_and_a_flow_of_its_own(traced, capsys):
    words = "bench vae --dataset freyfaces --batch 2 --latent 3 --channels 1 --cnfs 1 --width 4 --rank 2"
    assert main([*words.split(), "--solver", "rk4", "--estimators", "path", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["images"] == "random, 28x20 pixels"
    assert (record["solver"], record["solver_steps"]) == ("rk4", 4)
    step, alone = traced
    (moving, pixels), (after, _) = step["path"]
    assert (pixels.shape, pixels.dtype) == ((2, 28, 20), jnp.uint8)
    assert len({int(p) for p in pixels.ravel()}) > 100  # 256 grey levels
    assert jax.tree.map(jnp.shape, after) == jax.tree.map(jnp.shape, moving)
    arrays, ((_, derivative), _) = alone["path"]
    assert jax.tree.map(jnp.shape, derivative) == jax.tree.map(jnp.shape, arrays)


@pytest.mark.slow
def test_path_gradient_of_a_network_keeps_its_bar(capsys):
    """The bar for FLOPs, through the command itself."""
    words = (
        "bench cnf --dim 64 --width 1024 --solver-steps 10 --divergence hutchinson --repetitions 0"
    )
    assert main([*words.split(), "--estimators", "path", "total", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["ratios"]["path / total"]
    assert 0.80 < found["flops"] <= 0.90
    assert found["temporary_bytes"] <= 1.1
    assert found["seconds"] is None


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("bench cnf --batch 0", "--batch must be at least 1"),
        ("bench cnf --repetitions -1", "--repetitions at least 0"),
        ("bench cnf --estimators path path", "each once"),
        ("bench cnf --seed -1", "--seed must be from 0"),
        ("bench cnf --dim 0", "must be at least 1, got 0"),
        ("bench cnf --depth 3", "--divergence exact or hutchinson"),
        ("bench cnf --estimators fast", "--help explains"),
        ("bench phi4 --size 1", "at least 2 sites"),
        ("bench phi4 --preset paper --solver-steps 4", "take at least 20"),
        ("bench phi4 --preset slow", "--help explains"),
        ("bench vae --dataset cats", "there are mnist"),
        ("bench vae --depth 3 --divergence closed", "--divergence exact or hutchinson"),
        ("bench nonsense", "Choose from: cnf, phi4, vae, all"),
        ("bench all --out x --only rivals", "needs --rivals"),
        ("bench phi4 --rivals", "pip install bijx flowjax"),
        ("bench all --out x --rivals", "pip install bijx flowjax"),
    ],
)
def test_bad_options_end_in_one_line(words, remedy, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rivals, "_import", lambda name: None)
    assert main(words.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert remedy in captured.err
    assert captured.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_rival_that_is_there_is_found(monkeypatch):
    monkeypatch.setattr(rivals, "_import", {"bijx": object()}.get)
    assert rivals.installed() == ["bijx"]
    rivals.check_installed()


@pytest.mark.slow
def test_autoencoder_step_and_its_flow_alone(capsys):
    words = "bench vae --dataset freyfaces --batch 2 --latent 3 --channels 1 --cnfs 1 --width 4 --rank 2"
    assert main([*words.split(), "--repetitions", "1", "--estimators", "path", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["images"] == "random, 28x20 pixels"
    assert record["solver_steps"] is None
    step, alone = (part["estimators"]["path"] for part in (record, record["flow_alone"]))
    assert step["evaluations"] % 6 == 1  # Dopri5: six a step, and one to begin with
    assert step["evaluations_backward"] % 6 == 0
    assert step["flops"] > 10 * alone["flops"] > 0


def test_measure_options_say_what_they_take():
    MeasureOptions(1, ("path",), 0).check()
    with pytest.raises(pg.UserError, match="one or several"):
        MeasureOptions(estimators=()).check()
