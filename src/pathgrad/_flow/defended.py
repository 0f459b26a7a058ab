"""A wider tail for a trained flow."""

from .._ingredients.bases import DefensiveNormal, StandardNormal
from .._words.arguments import instance
from .._words.errors import ArgumentError, named
from .flow import Flow


def defended(flow: Flow, share: float = 0.1, factor: float = 1.3) -> Flow:
    """Return a flow whose base has a share of wider draws, carried by the same map.

    Use it after training, for importance sampling: the few largest weights, which make averages unreliable,
    become bounded. The ELBO and the effective sample size of a good flow fall slightly, so compare flows
    without it. It helps only where the flow is too narrow by less than the factor. Where parts of the target
    are missed, it does not, so keep it only if an evaluation says that it helps.

    Args:
        flow: A trained flow with the base `StandardNormal`.
        share: Share of the wider draws.
        factor: How much wider they are, in the coordinates of the base.
    """
    instance("flow", flow, Flow, "a `Flow`")
    if not isinstance(flow.base, StandardNormal):
        raise ArgumentError(
            f"Only a {named('flow')} with the base `StandardNormal` can be defended, not one with "
            f"{type(flow.base).__name__}."
        )
    return Flow(DefensiveNormal(flow.base.shape, share, factor, flow.base.dtype), flow.transforms)
