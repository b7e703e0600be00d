"""How a net decides: observations in, actions out, one crossing from numpy to torch and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from slm_lab.agent.algorithm.policy import Policy, mask_of, random_actions
from slm_lab.agent.net.obs_net import mask_in
from slm_lab.agent.net.program import Compiler, Program, Work
from slm_lab.lib.rng import Rng
from slm_lab.spec.schema import Schedule
from slm_lab.types import Act, map_obs, rows_in

Forward = Callable[[Any], tuple[list[Tensor], dict[str, Tensor]]]
"""Observations [N, ...] -> what an action distribution is made of, and what nets remember from then on."""


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
        hidden: Mapping[str, int],
        explore_var: Schedule | None = None,
        random_until: int = 0,
        stores_env: bool = False,
    ) -> None:
        self.policy, self.forward, self.device, self.explore_var = policy, forward, device, explore_var
        self.hidden, self.random_until, self.stores_env = hidden, random_until, stores_env
        self._program: Program | None = None
        self._number = 1.0, torch.tensor(1.0, device=device)  # the last explore_var, and the same as a program takes it

    def compile(self, compiler: Compiler, nets: nn.Module) -> None:
        """From now on explore by a compiled function; `nets` hold those that decide."""
        if not self.hidden and self.policy.foreseeable:
            self._program = Program("act", self._explore, nets, [], compiler)

    def _explore(self, work: Work) -> dict[str, Tensor]:
        """Exploring actions, as they are compiled."""
        *entries, explore_var = work.inputs
        shape = self.policy.spaces.obs_shape
        obs = dict(zip(shape, entries, strict=True)) if isinstance(shape, dict) else entries[0]
        with torch.no_grad():
            outputs, _ = self.forward(obs)
            return {"action": self.policy.explore(outputs, explore_var, work.noise, mask_in(obs))}

    def act(self, obs: Any, frame: int, rng: Rng) -> Act:
        """Exploring actions for N observations."""
        explore_var = self.explore_var(frame) if self.explore_var else 1.0
        if self._program is not None and frame >= self.random_until and rows_in(obs) == self.policy.spaces.num_envs:
            inputs = self._inputs(obs, explore_var)
            return self._acted(self._program(rows_in(obs), [], inputs, rng.noise)["action"].cpu(), {})
        with torch.inference_mode():
            hidden = dict[str, Tensor]()
            if frame < self.random_until:
                drawn = random_actions(self.policy.spaces, rows_in(obs), rng.noise, mask_of(obs))
                action = self.policy.from_env(drawn)
                if self.hidden:
                    hidden = self.forward(self._tensor(obs))[1]
            else:
                outputs, hidden = self.forward(self._tensor(obs))
                if self.device.type != "cpu":
                    outputs = [output.cpu() for output in outputs]
                action = self.policy.explore(outputs, explore_var, rng.noise, mask_of(obs))
            return self._acted(action, hidden)

    def _acted(self, action: Tensor, hidden: dict[str, Tensor]) -> Act:
        """What comes of actions as they were chosen."""
        sent = self.policy.to_env(action).numpy()
        return Act(sent, sent if self.stores_env else action.numpy(), {}, _arrays(hidden))

    def _inputs(self, obs: Any, explore_var: float) -> list[Tensor]:
        if explore_var != self._number[0]:
            self._number = explore_var, torch.tensor(explore_var, device=self.device)
        entries = [obs[key] for key in self.policy.spaces.obs_shape] if isinstance(obs, dict) else [obs]
        return [torch.from_numpy(entry).to(self.device) for entry in entries] + [self._number[1]]

    def best(self, obs: Any) -> Act:
        """The most likely actions."""
        with torch.inference_mode():
            outputs, hidden = self.forward(self._tensor(obs))
            mode = self.policy.dist(*outputs).mode().cpu()
            return Act(self.policy.to_env(mode).numpy(), mode.numpy(), {}, _arrays(hidden))

    def _tensor(self, obs: Any) -> Any:
        return map_obs(lambda x: torch.from_numpy(x).to(self.device), obs)


def _arrays(hidden: dict[str, Tensor]) -> dict[str, Any]:
    return {entry: value.cpu().numpy() for entry, value in hidden.items()}
