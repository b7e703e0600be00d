"""Gradient steps a second of PPO's nets on images, against Stable-Baselines3's policy with the same layers.

Nature CNN on [4, 84, 84] bytes, minibatch 256, policy and value on one body; one thread. What is timed is the whole
step: loss, gradient, clipping, Adam; its rows are drawn once.
Run: python -m perf.conv_update   (needs the extra `perf`)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.policies import ActorCriticCnnPolicy
from torch import Tensor

from perf.compare import compare, quiet
from slm_lab.agent.algorithm.actor import ActorCriticLearner
from slm_lab.agent.algorithm.base import NetPlan, PolicyGradientSpec
from slm_lab.agent.algorithm.losses import clipped_surrogate
from slm_lab.agent.net.conv import ConvNetSpec
from slm_lab.types import Spaces

ROWS, SHAPE, ACTIONS, STEPS = 256, (4, 84, 84), 6, 4


class Minibatch:
    """Rows as PPO's loss needs them."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.obs = torch.randint(0, 256, (ROWS, *SHAPE), dtype=torch.uint8)
        self.action = torch.randint(ACTIONS, (ROWS,))
        self.adv, self.target = torch.randn(ROWS), torch.randn(ROWS)
        self.log_prob = torch.full((ROWS,), -float(np.log(ACTIONS)))

    def loss(self, log_prob: Tensor, entropy: Tensor, value: Tensor) -> dict[str, Tensor]:
        return {
            "policy": clipped_surrogate(log_prob, self.log_prob, self.adv, 0.1),
            "entropy": -0.01 * entropy.mean(),
            "value": 0.5 * (value - self.target).square().mean(),
        }


class OurStep:
    """Our learner's step."""

    def __init__(self, rows: Minibatch) -> None:
        net = ConvNetSpec.model_validate(
            {
                "type": "ConvNet",
                "conv_hid_layers": [[32, 8, 4, 0, 1], [64, 4, 2, 0, 1], [64, 3, 1, 0, 1]],
                "fc_hid_layers": [512],
                "batch_norm": False,
                "normalize": True,
                "shared": True,
                "clip_grad_val": 0.5,
                "gpu": False,
            }
        )
        shown = Spaces(SHAPE, np.dtype(np.uint8), "discrete", ACTIONS, 8)
        self.rows = rows
        self.learner = ActorCriticLearner(
            PolicyGradientSpec(name="PPO", gamma=0.99), NetPlan(net, net), shown, (0, 0, 0)
        )
        self.noise = torch.Generator()

    def run(self, frames: int) -> None:
        for _ in range(frames // ROWS):
            outputs, value = self.learner.net(self.rows.obs)
            dist = self.learner.dist(outputs)
            terms = self.rows.loss(dist.log_prob(self.rows.action), dist.entropy(self.noise), value)
            self.learner.optim.step(terms)


class TheirStep:
    """The step that their PPO takes with their policy."""

    def __init__(self, rows: Minibatch) -> None:
        self.rows = rows
        self.policy: Any = ActorCriticCnnPolicy(
            spaces.Box(0, 255, SHAPE, np.uint8), spaces.Discrete(ACTIONS), lambda _: 1e-3
        )

    def run(self, frames: int) -> None:
        for _ in range(frames // ROWS):
            value, log_prob, entropy = self.policy.evaluate_actions(self.rows.obs, self.rows.action)
            loss = sum(self.rows.loss(log_prob, entropy, value.flatten()).values())
            self.policy.optimizer.zero_grad()
            loss.backward()  # type: ignore[union-attr]
            torch.nn.utils.clip_grad_norm_(self.policy.parameters(), 0.5)
            self.policy.optimizer.step()


def main() -> None:
    quiet()
    rows = Minibatch()
    compare(
        "Nature CNN, minibatch 256 (rows)",
        OurStep(rows),
        TheirStep(rows),
        "Stable-Baselines3",
        STEPS * ROWS,
        warm_up=ROWS,
    )


if __name__ == "__main__":
    main()
