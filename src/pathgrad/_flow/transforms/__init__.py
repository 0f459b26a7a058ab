"""Invertible maps that carry a `Draw`."""

from .abstract import AbstractBijection as AbstractBijection
from .abstract import AbstractTransform as AbstractTransform
from .affine import Affine as Affine
from .cnf import CNF as CNF
from .coupling import AffineCoupling as AffineCoupling
from .coupling import coupling_transforms as coupling_transforms
from .fixed_affine import FullAffine as FullAffine
from .fixed_affine import LowRankAffine as LowRankAffine
from .permutation import Permutation as Permutation
