"""The untrained lattice flow and its target."""

import pathgrad as pg
from pathgrad.experiments.phi4.experiment import PHI4
from pathgrad.experiments.phi4.options import Phi4Options
from pathgrad.experiments.phi4.theory import Phi4


def lattice_problem(options: Phi4Options) -> tuple[pg.Flow, Phi4]:
    """Return the flow and target that options describe, for any size: the coupling does not affect costs."""
    shell = PHI4.build(PHI4.for_costs(options)).shell()
    assert isinstance(shell.objective, pg.ReverseKL)
    assert isinstance(shell.objective.target, Phi4)
    return shell.model, shell.objective.target


def only_cnf(flow: pg.Flow) -> pg.CNF:
    """Return the single transform of a lattice flow, or the first of several alike."""
    cnf = flow.transforms[0]
    assert isinstance(cnf, pg.CNF)
    return cnf
