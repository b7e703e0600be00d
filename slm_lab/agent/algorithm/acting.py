"""How a net decides: observations in, actions out, one crossing from numpy to torch and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from slm_lab.agent.algorithm.policy import Policy, random_actions
from slm_lab.lib.rng import Rng
from slm_lab.spec.schema import Schedule
from slm_lab.types import Act, Array, map_obs, rows_in

Forward = Callable[[Any], list[Tensor]]  # observations [N, ...] -> what an action distribution is made of


class NetActor:
    """Acts by a net's outputs and an exploration rule.

    With `random_until`, actions before that frame are drawn uniformly. With `stores_env`, what the env gets is also
    what a memory stores; otherwise it is what the distribution sampled.
    """

    def __init__(
        self,
        policy: Policy,
        forward: Forward,
        device: torch.device,
        explore_var: Schedule | None = None,
        random_until: int = 0,
        stores_env: bool = False,
    ) -> None:
        self.policy, self.forward, self.device, self.explore_var = policy, forward, device, explore_var
        self.random_until, self.stores_env = random_until, stores_env

    def act(self, obs: Any, frame: int, rng: Rng) -> Act:
        """Exploring actions for N observations."""
        with torch.inference_mode():
            if frame < self.random_until:
                rows = rows_in(obs)
                action = self.policy.from_env(random_actions(self.policy.spaces, rows, rng.torch))
            else:
                outputs = self.forward(self._tensor(obs))
                if self.device.type != "cpu":
                    outputs = [output.cpu() for output in outputs]
                action = self.policy.explore(outputs, self.explore_var(frame) if self.explore_var else 1.0, rng.torch)
            sent = self.policy.to_env(action).numpy()
            stored = sent if self.stores_env else action.numpy()
        return Act(sent, stored, {})

    def best(self, obs: Any) -> Array:
        """The most likely actions, as the env gets them."""
        with torch.inference_mode():
            mode = self.policy.dist(*self.forward(self._tensor(obs))).mode()
            sent: Array = self.policy.to_env(mode).cpu().numpy()
        return sent

    def _tensor(self, obs: Any) -> Any:
        return map_obs(lambda x: torch.from_numpy(x).to(self.device), obs)
