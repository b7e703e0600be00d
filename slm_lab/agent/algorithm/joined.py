"""Batches laid end to end."""

from __future__ import annotations

from typing import Any

import torch

from slm_lab.types import Batch


def joined_obs(first: Any, second: Any) -> Any:
    """Observations [A, ...] and [B, ...] as one [A + B, ...]."""
    if isinstance(first, dict):
        return {name: torch.cat([entry, second[name]]) for name, entry in first.items()}
    return torch.cat([first, second])


def joined(first: Batch, second: Batch) -> Batch:
    """The rows of one batch, then those of another, which holds the same extras."""
    return Batch(
        joined_obs(first.obs, second.obs),
        torch.cat([first.action, second.action]),
        torch.cat([first.reward, second.reward]),
        joined_obs(first.next_obs, second.next_obs),
        torch.cat([first.terminated, second.terminated]),
        torch.cat([first.truncated, second.truncated]),
        joined_obs(first.extra, second.extra),
    )
