"""A net behind the form of observations: one array or several, allowed actions, what nets remember, sequences."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from slm_lab.agent.net.base import Net
from slm_lab.agent.net.entries import Encoders
from slm_lab.agent.net.recurrent import RecurrentNet
from slm_lab.types import MASK, Sequences

NEVER = -1e9  # of an action that is not allowed; finite, so that 0 times it is 0


class ObsNet(nn.Module):
    """forward: observations, and `side` numbers [B, side] -> one tensor [B, dim] per head.

    With `acts` the first head holds logits or values of actions, and those not allowed are never the best or likely.
    """

    def __init__(
        self, net: Net, encoders: Encoders | None, keys: list[str], name: str, side: int = 0, acts: bool = False
    ) -> None:
        super().__init__()
        self.net, self.encoders = net, encoders
        self.keys, self.entry, self.side, self.acts = keys, f"hidden.{name}", side, acts

    @property
    def hidden(self) -> dict[str, int]:
        """Sizes of what it remembers, by entry of the observation."""
        return {self.entry: self.net.hidden} if isinstance(self.net, RecurrentNet) else {}

    def forward(self, obs: Any, side: Tensor | None = None) -> list[Tensor]:
        if isinstance(obs, Tensor) and self.encoders is None:
            return self.net.forward(obs, side)
        if isinstance(obs, Sequences):
            return self._unrolled(obs, side)
        return self.step(obs, side)[0]

    def step(self, obs: Any, side: Tensor | None = None) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Outputs, and what is remembered after these observations."""
        if isinstance(obs, Tensor):
            obs = {"obs": obs}
        x, hidden = self._input(obs), dict[str, Tensor]()
        if isinstance(self.net, RecurrentNet):
            outputs, hidden[self.entry] = self.net.step(x, obs[self.entry], side)
        else:
            outputs = self.net.forward(x, side)
        return self._allowed(outputs, mask_in(obs)), hidden

    def _unrolled(self, obs: Sequences, side: Tensor | None) -> list[Tensor]:
        """Outputs for the rows that count, in their order."""
        rows = {key: value.flatten(0, 1) for key, value in obs.entries.items()}
        if not isinstance(self.net, RecurrentNet):
            return self.step({key: value[obs.keep] for key, value in rows.items()}, side)[0]
        features = self.net.unroll(self._input(rows), obs.entries[self.entry], obs.first, obs.burn_in)
        return self._allowed(self.net.outputs(features[obs.keep], side), mask_in(obs))

    def _input(self, obs: dict[str, Tensor]) -> Any:
        """What the net takes of an observation's entries."""
        if self.encoders is not None:
            return self.encoders.forward(obs)
        return obs[self.keys[0]] if len(self.keys) == 1 else {key: obs[key] for key in self.keys}

    def _allowed(self, outputs: list[Tensor], mask: Tensor | None) -> list[Tensor]:
        if mask is None or not self.acts:
            return outputs
        return [outputs[0].masked_fill(~mask, NEVER), *outputs[1:]]


def mask_in(obs: Any) -> Tensor | None:
    """Allowed actions [B, n] in the observations of a batch, where they say which."""
    if isinstance(obs, Sequences):
        return obs.entries[MASK].flatten(0, 1)[obs.keep] if MASK in obs.entries else None
    return obs.get(MASK) if isinstance(obs, dict) else None
