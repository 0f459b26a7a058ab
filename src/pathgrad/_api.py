"""Everything public, by layer. `pathgrad/__init__.py` opens this door on first use."""

# The order is that of the layers, which a sorter of imports does not know.
# isort: off

# Words
from . import devices as devices
from ._draw import Draw as Draw
from ._draw import SolveInfo as SolveInfo
from ._draw import Tally as Tally
from ._errors import ArgumentError as ArgumentError
from ._errors import UserError as UserError
from ._errors import named as named
from ._outcome import Outcome as Outcome
from ._outcome import Stop as Stop
from ._tree import PerDraw as PerDraw
from ._tree import freeze as freeze

# Ingredients: what speaks of one point
from ._bases import AbstractBase as AbstractBase
from ._bases import DiagonalNormal as DiagonalNormal
from ._bases import FullNormal as FullNormal
from ._bases import NormalMixture as NormalMixture
from ._bases import StandardNormal as StandardNormal
from ._divergence import AbstractDivergence as AbstractDivergence
from ._divergence import ClosedForm as ClosedForm
from ._divergence import Exact as Exact
from ._divergence import Hutchinson as Hutchinson
from ._fields import AbstractTractableField as AbstractTractableField
from ._fields import MLPField as MLPField
from ._target import LogDensity as LogDensity
from ._target import Target as Target

# Solve
from ._integrators import AbstractIntegrator as AbstractIntegrator
from ._integrators import Adaptive as Adaptive
from ._integrators import FixedStep as FixedStep

# Flow
from ._adjoints import AbstractAdjoint as AbstractAdjoint
from ._adjoints import Backsolve as Backsolve
from ._adjoints import Discrete as Discrete
from ._transforms import AbstractBijection as AbstractBijection
from ._transforms import AbstractTransform as AbstractTransform
from ._transforms import Affine as Affine
from ._transforms import AffineCoupling as AffineCoupling
from ._transforms import CNF as CNF
from ._flow import Flow as Flow
from ._flow import Pulled as Pulled

# Gradients and numbers
from . import metrics as metrics
from ._estimators import AbstractEstimator as AbstractEstimator
from ._estimators import PathGradient as PathGradient
from ._estimators import ScoreTerm as ScoreTerm
from ._estimators import TotalGradient as TotalGradient
from ._estimators import TwoCopyGradient as TwoCopyGradient
from ._estimators import score_term as score_term
from ._objectives import AbstractObjective as AbstractObjective
from ._objectives import Batch as Batch
from ._objectives import Data as Data
from ._objectives import Estimate as Estimate
from ._objectives import LatentModel as LatentModel
from ._objectives import NegativeELBO as NegativeELBO
from ._objectives import ReverseKL as ReverseKL
from ._objectives import WithTarget as WithTarget
from ._objectives import choice_term as choice_term
from ._objectives import outcome_of as outcome_of
from ._objectives import reverse_kl as reverse_kl
from ._check import Agreement as Agreement
from ._check import GradientCheck as GradientCheck
from ._check import check_gradients as check_gradients
from ._evaluate import Evaluation as Evaluation
from ._evaluate import evaluate as evaluate
from ._evaluate import weighted_chunks as weighted_chunks
from ._evaluate import weighted_draws as weighted_draws
from ._verdict import Level as Level
from ._verdict import Reason as Reason
from ._verdict import Verdict as Verdict
from ._verdict import khat_limit as khat_limit

# Train
from ._train.blocks import AbstractCompiledMethod as AbstractCompiledMethod
from ._train.clip import clip_by_measured_norm as clip_by_measured_norm
from ._train.first_order import FirstOrder as FirstOrder
from ._train.fit import Fit as Fit
from ._train.fit import fit as fit
from ._train.gauss_newton import GaussNewton as GaussNewton
from ._train.method import AbstractMethod as AbstractMethod
from ._train.method import AbstractRunner as AbstractRunner
from ._train.method import Block as Block
from ._train.row import Row as Row
from ._train.stages import Stages as Stages
from ._train.state import StepInfo as StepInfo
from ._train.state import TrainState as TrainState
from ._train.trainer import Trainer as Trainer
from ._train.trainer import TrainingDiverged as TrainingDiverged
from ._train.validation import Validation as Validation
