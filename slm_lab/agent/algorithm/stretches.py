"""Rollouts cut into stretches of episodes, for nets with a memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from slm_lab.types import Batch, Sequences, episode_starts


@dataclass(frozen=True)
class Cut:
    """S stretches of K steps of a rollout, [K, S] each."""

    index: Tensor  # rows of the flat rollout; where it ended before the stretch did, its last row again
    real: Tensor  # rows that are not such fillers
    first: Tensor  # where a net takes up what was stored: at the start of a stretch and of an episode

    @property
    def count(self) -> int:
        return self.index.shape[1]


def cut(ended: Tensor, length: int) -> Cut:
    """A rollout [T, N] as ceil(T / length) * N stretches, those of an env beside those of the others."""
    steps, envs = ended.shape
    starts = torch.arange(0, steps, length, device=ended.device)
    row = starts + torch.arange(min(length, steps), device=ended.device)[:, None]
    real = (row < steps).repeat_interleave(envs, 1)
    index = row.clamp_max(steps - 1).unsqueeze(-1) * envs + torch.arange(envs, device=ended.device)
    index = index.flatten(1)
    first = episode_starts(ended).flatten()[index]
    first[0] = True
    return Cut(index, real, first)


def whole(flat: Batch, ended: Tensor, length: int | None) -> Batch:
    """A whole rollout in one batch: as rows, or as stretches where nets are recurrent; ended [T, N]."""
    return flat if length is None else lesson(flat, cut(ended, length))


def lesson(flat: Batch, cut: Cut, which: Tensor | slice = slice(None)) -> Batch:
    """Some stretches of a flat rollout: observations as sequences, all else as rows [B] in their order."""
    index, real, first = (part[:, which] for part in (cut.index, cut.real, cut.first))
    keep = real.flatten().nonzero().squeeze(-1)
    rows = index.flatten()[keep]
    entries = {key: value[index] for key, value in _entries(flat.obs).items()}
    obs = Sequences(entries, first, keep)
    bare = replace(flat, obs=flat.reward, next_obs=flat.reward)  # what follows was valued before
    return replace(bare.map(lambda x: x[rows]), obs=obs, next_obs=obs)


def _entries(obs: Any) -> dict[str, Tensor]:
    assert isinstance(obs, dict)  # what nets remember is an entry
    return obs
