"""Invertible maps that carry a `Draw`."""

from .abstract import AbstractTransform as AbstractTransform
from .affine import Affine as Affine
from .bijection import AbstractBijection as AbstractBijection
from .cnf import CNF as CNF
from .coupling import AffineCoupling as AffineCoupling
