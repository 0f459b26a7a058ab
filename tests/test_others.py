"""The posteriors that the default fit was not tuned to: help for a sampler, and references."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import others

from .docs_helpers import ROOT


def model_of(name) -> others.Model:
    density = others.load(name).density
    assert isinstance(density, others.Other)
    return density.model


KNOWN = json.loads((ROOT / others.REFERENCES).read_text())["targets"]


@pytest.mark.parametrize("name", ["eight_schools_centred", "radon_centred", "irt_2pl"])
def test_relaxed_coordinates_come_with_their_log_determinant(name):
    model = model_of(name)
    assert model.relaxed is not None
    z = jnp.asarray(0.3 * np.random.default_rng(0).standard_normal(model.dim) + 0.2)
    jacobian = jax.jacfwd(lambda z: model.relaxed(z)[0])(z)  # pyright: ignore
    np.testing.assert_allclose(model.relaxed(z)[1], np.linalg.slogdet(jacobian)[1], rtol=1e-4)


def test_twins_have_the_same_density():
    model = model_of("twins")
    assert model.twin is not None
    x = np.array([[-0.8, 1.5, 0.3, -0.2, 0.7]])
    twin = model.twin(x)
    assert np.abs(twin - x).min() > 0.1
    densities = (model.log_prob(jnp.asarray(point[0])) for point in (x, twin))
    np.testing.assert_allclose(*densities, rtol=1e-5)


def test_references_can_be_trusted():
    assert set(KNOWN) <= set(others.NAMES)
    for name, known in KNOWN.items():
        target = others.load(name)
        assert len(known["mean"]) == target.shape[0]
        assert known["largest_rhat"] < 1.01
        assert known["smallest_ess"] > 400
