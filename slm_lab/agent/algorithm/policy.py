"""From a spec's words to behaviour: which distribution an action space takes, and how actions are chosen from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from slm_lab.lib import distribution as D
from slm_lab.lib.errors import lookup
from slm_lab.lib.noise import Draw, Noise
from slm_lab.types import MASK, ActionKind, Spaces

Build = Callable[..., D.Distribution]

PDTYPES: Mapping[ActionKind, Mapping[str, type[D.Distribution]]] = {
    "discrete": {"Categorical": D.Categorical, "Argmax": D.Argmax, "GumbelSoftmax": D.GumbelSoftmax},
    "multi_discrete": {"MultiCategorical": D.MultiCategorical},
    "multi_binary": {"Bernoulli": D.Bernoulli},
    "continuous": {
        "Normal": D.Normal,
        "NormalTanh": D.NormalTanh,
        "Beta": D.Beta,
        "Gumbel": D.Gumbel,
        "LogNormal": D.LogNormal,
        # with a diagonal covariance this is what independent Gaussians are
        "MultivariateNormal": D.Normal,
    },
}
"""The distributions of each kind of action; the first is the default."""

ACTION_POLICIES = ("default", "random", "epsilon_greedy", "boltzmann")


class Policy:
    """How net outputs become actions: a distribution, and an exploration rule on top of it."""

    def __init__(self, spaces: Spaces, pdtype: str | None, rule: str) -> None:
        options = PDTYPES[spaces.action_kind]
        name = next(iter(options)) if pdtype in (None, "default") else pdtype
        chosen = lookup(
            options, name, "agent.algorithm.action_pdtype", f"distribution for {spaces.action_kind} actions"
        )
        lookup(dict.fromkeys(ACTION_POLICIES), rule, "agent.algorithm.action_policy", "action policy")
        self.spaces, self.rule = spaces, rule
        self.dist: Build = partial(chosen, nvec=spaces.nvec) if chosen is D.MultiCategorical else chosen
        self.to_env, self.from_env = chosen.to_env, chosen.from_env

    @property
    def gaussian(self) -> bool:
        """Whether the second output is a log deviation, which may then be a parameter of its own."""
        return isinstance(self.dist, type) and issubclass(self.dist, D.Normal)

    @property
    def foreseeable(self) -> bool:
        """Whether it is known beforehand which random numbers a choice takes."""
        return self.dist is not D.Beta

    def out_dims(self, own_log_std: bool) -> list[int]:
        """Widths of the net's heads: logits, or location and scale."""
        if self.spaces.action_kind == "continuous":
            return [self.spaces.action_dim] * (1 if own_log_std and self.gaussian else 2)
        return [sum(self.spaces.nvec)] if self.spaces.action_kind == "multi_discrete" else [self.spaces.action_dim]

    def explore(
        self, outputs: Sequence[Tensor], explore_var: float | Tensor, noise: Noise, mask: Tensor | None = None
    ) -> Tensor:
        """Actions [N, ...] for training, by the exploration rule; random ones out of those that `mask` allows."""
        if self.rule == "default":
            return self.dist(*outputs).sample(noise)
        rows = len(outputs[0])
        if self.rule == "random":
            return self.from_env(random_actions(self.spaces, rows, noise, mask))
        if self.rule == "boltzmann":
            return self.dist(outputs[0] / explore_var, *outputs[1:]).sample(noise)
        greedy, random = self.dist(*outputs).mode(), self.from_env(random_actions(self.spaces, rows, noise, mask))
        coin = noise.draw(Draw("uniform", (rows,))) < explore_var  # one coin per env
        return torch.where(coin.view(-1, *[1] * (greedy.dim() - 1)), random, greedy)


def mask_of(obs: Any) -> Tensor | None:
    """The allowed actions in observations as numpy arrays, where they say which."""
    return torch.from_numpy(obs[MASK]) if isinstance(obs, dict) and MASK in obs else None


def random_actions(spaces: Spaces, rows: int, noise: Noise, mask: Tensor | None = None) -> Tensor:
    """Uniform actions [rows, ...] in the space a policy acts in, continuous ones in [-1, 1]; those `mask` allows."""
    if spaces.action_kind == "discrete":
        if mask is not None:
            return _any_of(mask, noise)
        return noise.draw(Draw("integers", (rows,), spaces.action_dim))
    if spaces.action_kind == "multi_discrete":
        if mask is not None:
            return torch.stack([_any_of(part, noise) for part in torch.split(mask, list(spaces.nvec), -1)], -1)
        return torch.stack([noise.draw(Draw("integers", (rows,), n)) for n in spaces.nvec], -1)
    uniform = noise.draw(Draw("uniform", (rows, spaces.action_dim)))
    return uniform.round() if spaces.action_kind == "multi_binary" else 2 * uniform - 1


def _any_of(mask: Tensor, noise: Noise) -> Tensor:
    """One of the allowed actions of each row [N, n], all alike."""
    return noise.draw(Draw("uniform", tuple(mask.shape))).masked_fill(~mask, -1.0).argmax(-1)
