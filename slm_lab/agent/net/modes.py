"""Nets learn in training mode and act in evaluation mode; where no layer cares, switching is left out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.utils.parametrize import ParametrizationList

from slm_lab.agent.net.batch_renorm import BatchRenorm1d

MODAL = (
    *(nn.modules.batchnorm._NormBase, nn.modules.dropout._DropoutNd, nn.RReLU, nn.RNNBase, nn.MultiheadAttention),
    *(ParametrizationList, BatchRenorm1d),
)
"""Layers that do something else while they learn."""


class Modes:
    """A net in evaluation mode, but for the time of `training`."""

    def __init__(self, net: nn.Module) -> None:
        self.net = net.eval()
        self.matter = any(_modal(module) for module in net.modules())

    @contextmanager
    def training(self) -> Iterator[None]:
        """Norm layers use and update batch statistics."""
        if not self.matter:  # walking over all modules twice costs a tenth of a small net's step
            yield
            return
        self.net.train()
        try:
            yield
        finally:
            self.net.eval()


def _modal(module: nn.Module) -> bool:
    """Whether a module may care: what is not torch's or ours is taken to."""
    known = type(module).__module__.split(".")[0] in ("torch", "slm_lab")
    return isinstance(module, MODAL) or not known
