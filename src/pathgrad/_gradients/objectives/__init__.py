"""Objectives: what training minimises."""

from .abstract import AbstractObjective as AbstractObjective
from .abstract import Batch as Batch
from .abstract import Estimate as Estimate
from .abstract import choice_term as choice_term
from .abstract import outcome_of as outcome_of
from .data import Data as Data
from .negative_elbo import LatentModel as LatentModel
from .negative_elbo import NegativeELBO as NegativeELBO
from .reverse_kl import ReverseKL as ReverseKL
from .reverse_kl import WithTarget as WithTarget
from .reverse_kl import reverse_kl as reverse_kl
