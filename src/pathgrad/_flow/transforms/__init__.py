"""Invertible maps that carry a `Draw`."""

from .abstract import AbstractBijection as AbstractBijection
from .abstract import AbstractTransform as AbstractTransform
from .affine import Affine as Affine
from .affine import AffineCoupling as AffineCoupling
from .cnf import CNF as CNF
from .fixed_affine import FullAffine as FullAffine
from .fixed_affine import LowRankAffine as LowRankAffine
