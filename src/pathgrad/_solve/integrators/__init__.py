"""Integrators: solve ordinary differential equations for a whole batch at once."""

from .abstract import AbstractIntegrator as AbstractIntegrator
from .abstract import Motion as Motion
from .abstract import Tableau as Tableau
from .abstract import Trajectory as Trajectory
from .adaptive import Adaptive as Adaptive
from .fixed_step import FixedStep as FixedStep
from .fixed_step import runge_kutta_step as runge_kutta_step
