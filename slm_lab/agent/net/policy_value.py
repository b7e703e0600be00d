"""Policy and value of one algorithm: one shared net, two separate ones, or a policy alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from slm_lab.agent.net.base import Head, NetSpec
from slm_lab.agent.net.obs_net import ObsNet
from slm_lab.types import ObsShape


class PolicyValueNet(nn.Module):
    """Policy outputs [B, dim] each, and a value [B] where there is a critic."""

    def __init__(
        self,
        make: Callable[..., ObsNet],  # (spec, obs_shape, heads, name, acts=...) -> its net
        obs_shape: ObsShape,
        policy_dims: list[int],
        log_std_dim: int | None,
        actor: NetSpec,
        critic: NetSpec | None,
    ) -> None:
        super().__init__()
        # only the mean or the logits get the small policy gain: a tiny log-std head would pin every deviation to 1
        heads = [Head(dim, actor.actor_init_std if i == 0 else None) for i, dim in enumerate(policy_dims)]
        self.outputs = len(heads)
        self.shared = critic is not None and actor.shared
        if self.shared:
            heads.append(Head(1, actor.critic_init_std))
        self.actor = make(actor, obs_shape, heads, "actor", acts=True)
        self.critic: ObsNet | None = None
        if critic is not None and not self.shared:
            self.critic = make(critic, obs_shape, [Head(1, critic.critic_init_std)], "critic")
        self.log_std = (
            None if log_std_dim is None else nn.Parameter(torch.full((log_std_dim,), actor.log_std_init or 0.0))
        )

    def _policy(self, outputs: list[Tensor]) -> list[Tensor]:
        policy = outputs[: self.outputs]
        return policy if self.log_std is None else [*policy, self.log_std.expand_as(policy[0])]

    def policy(self, obs: Any) -> list[Tensor]:
        """What a distribution is made of."""
        return self._policy(self.actor(obs))

    @property
    def hidden(self) -> dict[str, int]:
        """Sizes of what the nets remember, by entry of the observation."""
        return self.actor.hidden | (self.critic.hidden if self.critic is not None else {})

    def step(self, obs: Any) -> tuple[list[Tensor], dict[str, Tensor]]:
        """What a distribution is made of, and what the nets remember after these observations."""
        outputs, hidden = self.actor.step(obs)
        if self.critic is not None and self.critic.hidden:
            hidden |= self.critic.step(obs)[1]
        return self._policy(outputs), hidden

    def value(self, obs: Any) -> Tensor:
        """V(obs), [B]."""
        out: Tensor = self.actor(obs)[-1] if self.critic is None else self.critic(obs)[0]
        return out.squeeze(-1)

    def forward(self, obs: Any) -> tuple[list[Tensor], Tensor]:
        """Both, with one pass through what is shared."""
        if self.critic is not None:
            return self.policy(obs), self.value(obs)
        outputs = self.actor(obs)
        return self._policy(outputs), outputs[-1].squeeze(-1)

    def groups(self) -> dict[str, list[nn.Parameter]]:
        """Parameters by net: each net has its own learning rate and gradient clip."""
        own = [] if self.log_std is None else [self.log_std]
        groups = {"actor": [*self.actor.parameters(), *own]}
        if self.critic is not None:
            groups["critic"] = list(self.critic.parameters())
        return groups
