"""Returns and advantages over rollouts, numpy [T, N].

One rule for time limits: `terminated` drops the bootstrap, `ended` (terminated or truncated) stops the trace.
"""

from __future__ import annotations

import numpy as np

from slm_lab.types import Array


def gae(
    reward: Array, value: Array, next_value: Array, terminated: Array, ended: Array, gamma: float, lam: float
) -> Array:
    """Generalised advantage estimates [T, N]; `next_value` is V of the true successor of each row."""
    delta = reward + gamma * next_value * ~terminated - value
    decay = (gamma * lam) * ~ended
    adv, trace = np.empty_like(delta), np.zeros_like(delta[0])
    for t in range(len(delta) - 1, -1, -1):
        trace = delta[t] + decay[t] * trace
        adv[t] = trace
    return adv


def bootstrapped_returns(reward: Array, next_value: Array, terminated: Array, ended: Array, gamma: float) -> Array:
    """Discounted rewards to the end of the episode or of the rollout, plus the value found there, [T, N]."""
    cut = ended.copy()
    cut[-1] = True
    tail = reward + gamma * next_value * ~terminated
    total, running = np.empty_like(tail), np.zeros_like(tail[0])
    for t in range(len(tail) - 1, -1, -1):
        running = np.where(cut[t], tail[t], reward[t] + gamma * running)
        total[t] = running
    return total


def episode_returns(reward: Array, ended: Array, gamma: float) -> Array:
    """Discounted reward to go of whole episodes laid end to end, [T, N]; a time limit counts as an end."""
    total, running = np.empty_like(reward), np.zeros_like(reward[0])
    for t in range(len(reward) - 1, -1, -1):
        running = reward[t] + gamma * running * ~ended[t]
        total[t] = running
    return total
