# Everything public, by layer; `__init__.py` imports each name on first use.
# isort: off

# Shared vocabulary
from . import devices as devices
from ._words.constant import Constant as Constant
from ._words.draw import Draw as Draw
from ._words.draw import SolveInfo as SolveInfo
from ._words.draw import Tally as Tally
from ._words.errors import ArgumentError as ArgumentError
from ._words.errors import UserError as UserError
from ._words.errors import named as named
from ._words.outcome import Outcome as Outcome
from ._words.outcome import Stop as Stop
from ._words.tree import PerDraw as PerDraw
from ._words.tree import freeze as freeze

# Ingredients: everything that is defined for one point
from ._ingredients.activations import tanh_and_log_cosh as tanh_and_log_cosh
from ._ingredients.bases import AbstractBase as AbstractBase
from ._ingredients.bases import DefensiveNormal as DefensiveNormal
from ._ingredients.bases import DiagonalNormal as DiagonalNormal
from ._ingredients.bases import FullNormal as FullNormal
from ._ingredients.bases import NormalMixture as NormalMixture
from ._ingredients.bases import StandardNormal as StandardNormal
from ._ingredients.divergence import AbstractDivergence as AbstractDivergence
from ._ingredients.divergence import ClosedForm as ClosedForm
from ._ingredients.divergence import Exact as Exact
from ._ingredients.divergence import Hutchinson as Hutchinson
from ._ingredients.fields import AbstractTractableField as AbstractTractableField
from ._ingredients.fields import MLPField as MLPField
from ._ingredients.precise import Precise as Precise
from ._ingredients.precise import Precision as Precision
from ._ingredients.precise import compare_precisions as compare_precisions
from ._ingredients.precise import needs_float64 as needs_float64
from ._ingredients.tied_fields import CorrelatedField as CorrelatedField
from ._ingredients.tied_fields import TiedField as TiedField
from ._ingredients.target import LogDensity as LogDensity
from ._ingredients.target import Target as Target

# Named parameters
from ._named.abstract import AbstractNamedTarget as AbstractNamedTarget
from ._named.abstract import named_values as named_values
from ._named.numpyro_target import NumpyroTarget as NumpyroTarget
from ._named.numpyro_target import from_numpyro as from_numpyro
from ._named.posterior import Posterior as Posterior
from ._named.pymc_target import from_pymc as from_pymc
from ._named.supports import AbstractSupport as AbstractSupport
from ._named.supports import bounded as bounded
from ._named.supports import correlation_cholesky as correlation_cholesky
from ._named.supports import ordered as ordered
from ._named.supports import positive as positive
from ._named.supports import real as real
from ._named.supports import simplex as simplex
from ._named.tree import TreeTarget as TreeTarget
from ._named.tree import from_pytree as from_pytree

# Solve
from ._solve.integrators import AbstractIntegrator as AbstractIntegrator
from ._solve.integrators import Adaptive as Adaptive
from ._solve.integrators import FixedStep as FixedStep

# Flow
from ._solve.adjoints import AbstractAdjoint as AbstractAdjoint
from ._solve.adjoints import Backsolve as Backsolve
from ._solve.adjoints import Discrete as Discrete
from ._flow.transforms import AbstractBijection as AbstractBijection
from ._flow.transforms import AbstractTransform as AbstractTransform
from ._flow.transforms import Affine as Affine
from ._flow.transforms import AffineCoupling as AffineCoupling
from ._flow.transforms import CNF as CNF
from ._flow.transforms import Permutation as Permutation
from ._flow.transforms import coupling_transforms as coupling_transforms
from ._flow.transforms import FullAffine as FullAffine
from ._flow.transforms import LowRankAffine as LowRankAffine
from ._flow.defended import defended as defended
from ._flow.flow import Flow as Flow
from ._flow.flow import Pulled as Pulled
from ._flow.whitened import Whitened as Whitened

# Gradients and numbers
from . import metrics as metrics
from ._gradients.estimators import AbstractEstimator as AbstractEstimator
from ._gradients.estimators import PathGradient as PathGradient
from ._gradients.score_term import ScoreTerm as ScoreTerm
from ._gradients.estimators import TotalGradient as TotalGradient
from ._gradients.estimators import TwoCopyGradient as TwoCopyGradient
from ._gradients.score_term import score_term as score_term
from ._gradients.objectives import AbstractObjective as AbstractObjective
from ._gradients.objectives import Batch as Batch
from ._gradients.objectives import Data as Data
from ._gradients.objectives import Estimate as Estimate
from ._gradients.objectives import LatentModel as LatentModel
from ._gradients.objectives import NegativeELBO as NegativeELBO
from ._gradients.objectives import ReverseKL as ReverseKL
from ._gradients.objectives import WithTarget as WithTarget
from ._gradients.objectives import choice_term as choice_term
from ._gradients.objectives import outcome_of as outcome_of
from ._gradients.objectives import reverse_kl as reverse_kl
from ._gradients.check import Agreement as Agreement
from ._gradients.check import GradientCheck as GradientCheck
from ._gradients.check import check_gradients as check_gradients
from ._numbers.check_divergence import DivergenceCheck as DivergenceCheck
from ._numbers.check_divergence import check_divergence as check_divergence
from ._numbers.evaluate import Evaluation as Evaluation
from ._numbers.evaluate import evaluate as evaluate
from ._numbers.evaluate import weighted_chunks as weighted_chunks
from ._numbers.evaluate import weighted_draws as weighted_draws
from ._numbers.limits import khat_limit as khat_limit
from ._numbers.metropolis import Chain as Chain
from ._numbers.metropolis import metropolis as metropolis
from ._numbers.mode_search import ModeSearch as ModeSearch
from ._numbers.mode_search import Region as Region
from ._numbers.summary import Summary as Summary
from ._numbers.summary import summarise as summarise
from ._numbers.target_draws import Distances as Distances
from ._numbers.to_arviz import to_arviz as to_arviz
from ._numbers.verdict import Level as Level
from ._numbers.verdict import Reason as Reason
from ._numbers.verdict import Verdict as Verdict
from ._numbers.weighted import Expectation as Expectation
from ._numbers.weighted import Weighted as Weighted

from ._numbers.quantity import Numbers as Numbers
from ._numbers.quantity import Quantity as Quantity
from ._numbers.quantity import number_in as number_in

# Train
from ._train.blocks import AbstractCompiledMethod as AbstractCompiledMethod
from ._train.clip import clip_by_measured_norm as clip_by_measured_norm
from ._train.first_order import FirstOrder as FirstOrder
from ._train.fit import Fit as Fit
from ._train.gauss_newton import GaussNewton as GaussNewton
from ._train.method import AbstractMethod as AbstractMethod
from ._train.method import AbstractRunner as AbstractRunner
from ._train.method import Block as Block
from ._train.rate import AbstractRate as AbstractRate
from ._train.rate import Restarts as Restarts
from ._train.rate import Trapezoid as Trapezoid
from ._train.row import Row as Row
from ._train.stages import Stages as Stages
from ._train.state import StepInfo as StepInfo
from ._train.state import TrainState as TrainState
from ._train.trainer import Trainer as Trainer
from ._train.trainer import TrainingDiverged as TrainingDiverged
from ._train.validation import AbstractValidation as AbstractValidation
from ._train.validation import Validation as Validation
from ._train.warm_start.method import ScoreRegression as ScoreRegression
from ._train.warm_start.outcome import StartKind as StartKind
from ._train.warm_start.outcome import StartOutcome as StartOutcome
from ._train.warm_start.warm_start import LocalMode as LocalMode
from ._train.warm_start.warm_start import WarmStart as WarmStart
from ._train.warm_start.warm_start import warm_start as warm_start

from ._modes.search import search_modes as search_modes

# The default fit
from ._default.fit import fit as fit
from ._default.kinds import Kind as Kind
from ._default.plan import Plan as Plan
from ._default.recipe import Recipe as Recipe
from ._default.result import Shortfall as Shortfall
from ._default.result import TargetFit as TargetFit

# Runs
from ._runs.comparison import Comparison as Comparison
from ._runs.comparison import Standing as Standing
from ._runs.comparison import compare_groups as compare_groups
from ._runs.experiment import AbstractExperiment as AbstractExperiment
from ._runs.experiment import Decided as Decided
from ._runs.experiment import OptionsTable as OptionsTable
from ._runs.experiment import ResultTable as ResultTable
from ._runs.experiment import find_experiment as find_experiment
from ._runs.group import Group as Group
from ._runs.group import find_runs as find_runs
from ._runs.group import group_runs as group_runs
from ._runs.panel import MissingData as MissingData
from ._runs.panel import Panel as Panel
from ._runs.problem import AbstractProblem as AbstractProblem
from ._runs.problem import Findings as Findings
from ._runs.problem import Trained as Trained
from ._runs.problem import Training as Training
from ._runs.problem import run_keys as run_keys
from ._runs.run import Run as Run
from ._runs.session import Session as Session
from ._runs.session import session as session
from ._runs.session import train as train
from ._runs.sources import Source as Source
from ._runs.status import Status as Status

# Experiments
from . import targets as targets
from .experiments.flows.experiment import AbstractFlowExperiment as AbstractFlowExperiment
from .experiments.flows.problem import FlowProblem as FlowProblem
from .experiments.flows.problem import Measurement as Measurement
