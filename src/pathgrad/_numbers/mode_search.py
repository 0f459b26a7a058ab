"""What a search outside a flow's own draws has found. `pathgrad._modes` does the search."""

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np

GRADIENTS = 64_512  # of the chains of a search, by default: 252 chains, 64 temperatures of 4 gradients


class Region(NamedTuple):
    """A region that a flow has lost.

    Attributes:
        point: A point in it: of the draws by which it was measured, the one with the largest density.
        log_p: The target's log density there.
        log_q: The flow's log density there.
        share: What the region has of the target's mass, by independent draws.
        share_err: Standard error of the share.
    """

    point: np.ndarray
    log_p: float
    log_q: float
    share: float
    share_err: float


@dataclasses.dataclass(frozen=True)
class ModeSearch:
    """What a search outside a flow's own draws has found.

    Attributes:
        regions: Regions that the flow has lost, the largest first; none if nothing was found.
        chains: Number of chains that looked for them.
        reach: How far out they started, in standard deviations of the flow.
        ends: Share of the chains that ended where the flow has far too little mass. With a good fit it need
            not be zero: there may be next to no mass in such places.
        gradients: Gradients of the target that were computed.
        seconds: Time that it took, compiling included.
    """

    regions: tuple[Region, ...]
    chains: int
    reach: float
    ends: float
    gradients: int
    seconds: float

    @property
    def share(self) -> float:
        """The part of the target's mass that is in the regions."""
        return min(1.0, math.fsum(region.share for region in self.regions))

    @property
    def share_err(self) -> float:
        """Standard error of that part."""
        return math.hypot(*(region.share_err for region in self.regions))

    def numbers(self) -> dict[str, Any]:
        """Return what an `Evaluation` keeps of it."""
        found: dict[str, Any] = {"chains": self.chains, "reach": self.reach, "lost": self.share}
        if self.regions:
            point = np.asarray(self.regions[0].point, float)
            found |= {"lost_err": self.share_err, "lost_regions": len(self.regions)}
            found["lost_point"] = point.ravel().tolist()
        return found
