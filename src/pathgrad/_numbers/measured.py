"""What an evaluation measures of a flow, in the order of its table."""

from .quantity import Quantity

MEASURED = (
    Quantity("samples", "draws", "count"),
    Quantity("failed", "failed draws", "count"),
    Quantity("ess", "ESS", "share", better=1, compared=True),
    Quantity("forward_ess", "forward ESS", "share"),
    Quantity("kl", "reverse KL", "{:.5f}", better=-1, compared=True),
    Quantity("log_z", "log Z", "{:.5f}"),
    Quantity("elbo", "ELBO", "{:.5f}"),
    Quantity("eubo", "EUBO", "{:.5f}"),
    Quantity("log_z_both", "log Z, from both sides", "{:.5f}"),
    Quantity("mean_shift", "mean of a coordinate off by", "{:.3f}", "sd at most"),
    Quantity("ks", "KS distance of a coordinate", "{:.3f}", "at most"),
    Quantity("khat", "k-hat", "{:.2f}", compared=True),
    Quantity("largest_weight", "largest weight", "{:.3g}", "times the mean"),
    Quantity("solver_shift", "log Z, solver twice as fine", "{:+.1e}"),
    Quantity("ess_shift", "ESS, solver twice as fine", "{:+.1e}"),
    Quantity("evaluations", "field evaluations", "{:.4g}"),
    Quantity("lost", "mass found elsewhere", "share"),
)
