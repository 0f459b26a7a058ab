"""The names of the targets. No JAX here: the command line prints them in its help."""

# In the order of the benchmark: synthetic targets, those of sampler papers, real posteriors.
NAMES = (
    "funnel-10", "banana", "correlated-20", "ring", "two-modes", "many-well-32", "gmm40-2", "gmm40-50",
    "credit", "credit-prior", "ionosphere", "sonar", "seeds", "cox-1600", "cox-1024",
    "eight_schools_noncentered", "arK", "garch11", "one_comp_mm_elim_abs", "low_dim_gauss_mix", "hmm_example",
    "logearn_interaction", "nes2000",
)  # fmt: skip
