"""Models of PyMC as targets. PyMC is large, and not among the packages that tests install."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import pathgrad as pg

pymc = pytest.importorskip("pymc", reason="PyMC is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")  # of its own

Y, ERRORS = np.array([28.0, 8.0, -3.0]), np.array([15.0, 10.0, 16.0])


def test_a_model_and_what_it_derives():
    with pymc.Model():
        mean = pymc.Normal("mean", 0, 5)
        spread = pymc.HalfCauchy("spread", 5)
        shares = pymc.Dirichlet("shares", np.array([1.0, 2.0, 3.0]))
        effect = pymc.Normal("effect", 0, 1, shape=3)
        total = pymc.Deterministic("total", mean + spread * effect)
        pymc.Potential("bend", -shares[0])
        pymc.Normal("y", total, ERRORS, observed=Y)
        target = pg.from_pymc()
    assert target.shape == (1 + 1 + 2 + 3,)
    assert list(target.parameters) == ["mean", "spread", "shares", "effect", "total"]
    x = np.array([0.7, -0.3, 0.2, 0.5, 1.0, -1.0, 0.3])
    values = {name: np.asarray(value) for name, value in target.constrain(jnp.asarray(x)).items()}
    np.testing.assert_allclose(values["total"], 0.7 + np.exp(-0.3) * x[4:], rtol=1e-12)
    assert values["shares"].sum() == pytest.approx(1)
    expected = (
        stats.norm.logpdf(Y, values["total"], ERRORS).sum()
        + stats.norm.logpdf(0.7, 0, 5)
        + stats.halfcauchy.logpdf(values["spread"], scale=5)
        + stats.norm.logpdf(x[4:]).sum()
        + stats.dirichlet.logpdf(values["shares"] / values["shares"].sum(), [1, 2, 3])
        - values["shares"][0]
    )
    jacobian = jax.jacfwd(lambda x: [target.constrain(x)[name] for name in ("spread", "shares")])
    rows = np.concatenate([np.atleast_2d(row) for row in jacobian(jnp.asarray(x))])
    log_det = np.linalg.slogdet(rows[:3, 1:4])[1]
    assert float(target.log_prob(jnp.asarray(x))) == pytest.approx(expected + log_det, abs=1e-6)
    with jax.enable_x64(False):
        single = jax.jit(jax.vmap(pg.Precise(target).log_prob))(jnp.asarray(x, jnp.float32)[None])
    assert float(single[0]) == pytest.approx(expected + log_det, rel=1e-6)


def test_the_precision_of_the_process_stays_what_it_is():
    """Importing PyMC's functions for JAX changes it."""
    code = """
import pymc, jax.numpy as jnp, pathgrad as pg
with pymc.Model():
    pymc.HalfNormal("scale")
    target = pg.from_pymc()
print(jnp.zeros(()).dtype, target.log_prob(jnp.zeros(1)).dtype)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "float32 float32\n", done.stderr


def test_what_is_refused():
    with pymc.Model() as model:
        pymc.Poisson("count", 3.0)
    with pytest.raises(pg.ArgumentError, match="'count' is discrete"):
        pg.from_pymc(model)
    with pymc.Model() as model:
        pymc.Normal("y", 0, 1, observed=1.0)
    with pytest.raises(pg.ArgumentError, match="no unknown variable"):
        pg.from_pymc(model)
