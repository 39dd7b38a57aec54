"""A stage of shipping: what it needs, and when it is left out."""

from collections.abc import Callable
from dataclasses import dataclass

from deploykit.shipping.shipment import Shipment
from deploykit.shipping.stage_result import Outcome


@dataclass(frozen=True)
class ShipStage:
    """One act of the whole, in its place."""

    name: str
    run: Callable[[Shipment], Outcome]
    options: tuple[str, ...] = ()
    """The fields of `ShipOptions` on which its result depends."""
    needs: tuple[str, ...] = ()
    """The stages whose results it reads."""
    left_out: Callable[[Shipment], str] = lambda shipment: ""
    """Why there is nothing to do for it, in a sentence; empty: it runs."""
    measures: bool = False
    """Whether its result holds for this machine alone."""
    seconds: float = 10.0
    """That it takes for a small model, where nothing better is known; with a share, at most."""
    seconds_a_ms: float = 0.0
    """More of them for each millisecond that a call takes, as far as the model's size tells."""
    share: float = 0.0
    """Of the budget that is left when it begins, that it may take; 0: it takes what it takes."""

    def about(self, call_ms: float) -> float:
        """Return the seconds that it takes where a call takes so long."""
        return self.seconds + self.seconds_a_ms * call_ms
