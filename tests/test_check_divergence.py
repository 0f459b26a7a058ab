"""The check of closed-form divergences: right for the library's fields, wrong where a formula is wrong."""

import math

import jax.numpy as jnp
import jax.random as jr
import pytest

import pathgrad as pg
from pathgrad._numbers import check_divergence as check
from pathgrad._numbers.check_divergence import check_divergence, has_foreign_formula
from pathgrad.experiments.phi4.field import LatticeField
from pathgrad.experiments.vae.field import AmortisedField
from pathgrad.experiments.vae.gates import GatedField

from .helpers import T0, T1, bent_flow, correlated_field, coupling, plane, skewed_target, space, tied_field
from .phi4_helpers import rough_field
from .vae_helpers import small_model

KEY = jr.key(3)


class OffField(pg.AbstractTractableField):
    """A field of one hidden layer whose prepared vector is off by a factor, and whose velocity by a shift."""

    inner: pg.MLPField
    factor: float = 1.0
    shift: float = 0.0

    def __call__(self, t, x):
        return self.inner(t, x)

    def prepare(self):
        return self.factor * self.inner.prepare()

    def velocity_and_divergence(self, t, x, prepared):
        velocity, divergence = self.inner.velocity_and_divergence(t, x, prepared)
        return velocity + self.shift, divergence


def off_flow(**wrong):
    inner = pg.MLPField(dim=2, width=8, depth=1, key=jr.key(1), output_scale=3.0)
    field = OffField(inner, **wrong)
    return pg.Flow(pg.StandardNormal((2,)), [pg.CNF(field, integrator=pg.FixedStep(8), t0=T0, t1=T1)])


def network_flow(depth, **options):
    field = pg.MLPField(dim=3, width=6, depth=depth, key=jr.key(2), output_scale=2.0)
    return pg.Flow(pg.StandardNormal((3,)), [pg.CNF(field, integrator=pg.FixedStep(4), **options)])


def lattice_flow(size):
    cnf = pg.CNF(rough_field(size), integrator=pg.FixedStep(2))
    return pg.Flow(pg.StandardNormal((size, size)), [cnf])


def posterior(**field):
    images = jr.bernoulli(jr.key(0), 0.4, (3, 4, 4)).astype(jnp.uint8)
    return small_model(latent=3, cnfs=2, **field).posterior(images)


FLOWS = {
    "network": lambda: network_flow(1),
    "two layers": lambda: network_flow(2),
    # Noise of the divergence used in training does not matter: the closed form is what evaluation uses.
    "noisy": lambda: network_flow(1, divergence=pg.Hutchinson()),
    "gates": lambda: posterior(field="gates"),
    "low rank": lambda: posterior(field="low-rank", depth=2, rank=2),
    "lattice": lambda: lattice_flow(3),
    "tied": lambda: pg.Flow(pg.StandardNormal((3,)), [pg.CNF(tied_field())]),
    "correlated": lambda: pg.Flow(pg.StandardNormal((3,)), [pg.CNF(correlated_field())]),
}


@pytest.mark.parametrize("make", FLOWS.values(), ids=FLOWS)
def test_closed_forms_of_the_library_are_right(make):
    flow = make()
    found = check_divergence(flow, key=KEY, n=5)
    assert found.is_right
    assert found.fields == len(flow.transforms)
    assert found.worst < 1e-12
    assert found.size > 1e-3
    assert str(found).startswith("The closed-form divergences are right: they differ")
    assert not has_foreign_formula(flow)


def test_every_tractable_field_of_the_library_is_checked():
    known = {pg.MLPField, GatedField, AmortisedField, LatticeField, pg.TiedField, pg.CorrelatedField}
    assert {each for each in subclasses(pg.AbstractTractableField) if is_ours(each)} == known


def subclasses(cls):
    found = set(cls.__subclasses__())
    return found.union(*(subclasses(each) for each in found))


def is_ours(cls):
    return cls.__module__.startswith("pathgrad.")


def test_a_formula_off_by_a_hundredth_is_found():
    right, wrong = (check_divergence(off_flow(factor=factor), key=KEY) for factor in (1.0, 1.01))
    assert right.is_right
    assert right.error < 1e-12
    assert not wrong.is_right
    # The error in nats is a hundredth of the size of the divergences, which is the same for both.
    assert wrong.size == pytest.approx(right.size, rel=1e-12)
    assert wrong.error == pytest.approx(0.01 * right.size, rel=1e-9)
    assert wrong.worst == pytest.approx(wrong.error / max(1.0, wrong.size))
    assert "Do not trust this flow's densities" in str(wrong)


def test_so_is_a_velocity_that_is_not_the_fields():
    found = check_divergence(off_flow(shift=0.1), key=KEY)
    assert found.error < 1e-12
    assert found.velocity_error > 0.01
    assert not found.is_right
    # Nothing is known of what is not a number.
    nothing = check_divergence(off_flow(factor=math.nan), key=KEY)
    assert nothing.worst == math.inf
    assert not nothing.is_right


def test_large_lattices_take_few_draws_and_chunks(monkeypatch):
    """One pass for each draw and dimension, and as many of them in memory as there is room for."""
    sizes, kept = [], check.lax.map

    def counted(function, rows, *, batch_size):
        sizes.append((len(rows), batch_size))
        return kept(function, rows, batch_size=batch_size)

    monkeypatch.setattr(check, "_PASSES", 3 * 16)
    monkeypatch.setattr(check, "_NUMBERS", 5 * 3 * 16)
    monkeypatch.setattr(check.lax, "map", counted)
    found = check_divergence(lattice_flow(4), key=KEY)
    assert sizes == [(16, 5)]
    assert found.is_right
    assert found.worst < 1e-12 < found.size


NO_FORMULA = {
    "coupling": space(coupling(3)),
    "base": plane(),
    "function": bent_flow("exact", field=lambda t, x: -x),
}


@pytest.mark.parametrize("flow", NO_FORMULA.values(), ids=NO_FORMULA)
def test_without_closed_forms_there_is_nothing_to_check(flow):
    found = check_divergence(flow, key=KEY)
    assert (found.fields, found.worst, found.is_right) == (0, 0.0, True)
    assert "nothing to check" in str(found)


def test_evaluation_checks_the_fields_of_others():
    """Those of the library are left to its tests, unless the result of a check is given."""
    target = skewed_target()

    def judged(flow, **more):
        return pg.evaluate(flow, target, key=jr.key(0), n=64, **more)

    inside = plane(coupling())
    assert judged(inside).divergence_error is None
    given = pg.DivergenceCheck(1, 0.5, 0.0, 2.0)
    assert judged(inside, divergence=given).divergence_error == 0.25

    mine = judged(bent_flow())
    assert mine.divergence_error < 1e-12
    assert pg.Reason.WRONG_DIVERGENCE not in mine.verdict.reasons

    wrong = judged(off_flow(factor=1.05))
    assert wrong.verdict == pg.Verdict(pg.Level.UNUSABLE, (pg.Reason.WRONG_DIVERGENCE,))
    assert "(relative error " in wrong.warnings[0]
    assert "unusable: the closed-form divergence of a field is wrong" in str(wrong)
