"""Densities that can be drawn from directly: where a flow begins, or a whole family in itself."""

from .abstract import AbstractBase as AbstractBase
from .mixture import NormalMixture as NormalMixture
from .normal import DiagonalNormal as DiagonalNormal
from .normal import FullNormal as FullNormal
from .normal import StandardNormal as StandardNormal
