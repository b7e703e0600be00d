"""The vector env over an engine, and the one place that knows autoreset: true successors out, then ended envs anew."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np
from loguru import logger

from slm_lab.env.engine import Engine, put, take
from slm_lab.env.spaces import spaces_of
from slm_lab.lib.errors import RunError
from slm_lab.types import Array, Obs, State, Step


class GymVecEnv:
    """N Gymnasium envs; `limits` [N] cut first episodes short, so that envs of fixed length do not run in phase."""

    def __init__(
        self,
        engine: Engine,
        limits: Array | None = None,
        exact: Literal["exact", "unverified", "restarts"] = "unverified",
    ) -> None:
        n = engine.num_envs
        self._engine = engine
        self.spaces = spaces_of(engine.observation_space, engine.action_space, n)
        self.action_space = engine.action_space
        self.exact = exact
        self._left = None if limits is None else limits.astype(np.int64)  # steps until a first episode is cut
        self._returns = np.zeros(n)  # raw reward of the open episodes
        self.obs: Obs
        self.action_mask: Array | None
        self.obs, self.action_mask = engine.reset(np.arange(n))
        check_finite(self.obs)
        if self.action_mask is not None:
            self.spaces = replace(self.spaces, mask_size=self.action_mask.shape[1])

    def step(self, action: Array) -> Step:
        obs, reward, terminated, truncated, mask, over, broken = self._engine.step(action)
        if broken is not None:
            self._mend(broken, obs, mask)
            reward[broken], terminated[broken], truncated[broken] = 0, False, True
        learnt = reward.astype(np.float32)
        check_finite(obs)
        check_finite(learnt, what="reward")
        self._returns += reward
        ended = counted = terminated | truncated if over is None else over
        if broken is not None:
            ended = counted | broken
            counted = counted & ~broken
        if self._left is not None:
            cut = self._cut(self._left, ended)
            truncated |= cut
            ended = ended | cut
        returns: tuple[float, ...] = ()
        self.obs, self.action_mask = obs, mask
        if np.count_nonzero(ended):  # a quarter of the cost of any()
            returns = tuple(self._returns[counted].tolist())
            self._restart(ended.nonzero()[0])
        return Step(learnt, obs, terminated, truncated, returns, mask)

    def _mend(self, broken: Array, obs: Obs, mask: Array | None) -> None:
        """Let envs that lost their episode stand still [N]: it is cut where it was last seen."""
        put(obs, broken, take(self.obs, broken))
        if mask is not None and self.action_mask is not None:
            mask[broken] = self.action_mask[broken]

    def _cut(self, left: Array, ended: Array) -> Array:
        """First episodes [N] that reach their limit in this step; one that ended before has none."""
        left -= 1
        left[ended] = 0
        if (left <= 0).all():
            self._left = None
        cut: Array = (left == 0) & ~ended
        return cut

    def _restart(self, index: Array) -> None:
        """Reset the ended envs; what was given out as their successors stays as it is."""
        rows, masks = self._engine.reset(index)
        check_finite(rows, index)
        self.obs = take(self.obs, slice(None))
        put(self.obs, index, rows)
        if self.action_mask is not None and masks is not None:
            self.action_mask = self.action_mask.copy()
            self.action_mask[index] = masks
        self._returns[index] = 0

    def close(self) -> None:
        self._engine.close()

    def state_dict(self) -> State:
        return {
            "engine": self._engine.state_dict(),
            "returns": self._returns.copy(),
            "left": None if self._left is None else self._left.copy(),
        }

    def load_state_dict(self, state: State) -> None:
        other = self._engine.load_state_dict(state["engine"])
        if other:
            logger.warning(
                f"replayed observation differs from the saved one in envs {other}: "
                "their episodes go on from another state, and the run is not an exact continuation"
            )
        self.obs, self.action_mask = self._engine.current()
        self._returns = np.array(state["returns"], np.float64)
        self._left = None if state["left"] is None else np.array(state["left"], np.int64)


def check_finite(values: Obs, index: Array | None = None, what: str = "observation") -> None:
    """RunError for NaN and infinity in rows [n, ...] of the envs at `index`, or of all: nothing may learn from them."""
    if isinstance(values, dict):
        for key, entry in values.items():
            check_finite(entry, index, f"{what} {key!r}")
    # a square sum is a third of the cost of looking at each number; it is not finite where one of them is not
    elif values.dtype.kind == "f" and not math.isfinite(np.vdot(values, values)) and not np.isfinite(values).all():
        row, *at = np.argwhere(~np.isfinite(values))[0].tolist()
        env = row if index is None else int(index[row])
        raise RunError(f"env {env}: {what}{at or ''} is {values[(row, *at)]}; only finite numbers can be learnt from")


class RestartingVecEnv(GymVecEnv):
    """Envs whose open episodes cannot be saved: loaded ones are new, have scored nothing and are out of phase again."""

    def __init__(self, engine: Engine, what: str, limits: Callable[[], Array] | None = None) -> None:
        super().__init__(engine, limits() if limits else None, "restarts")
        self._what, self._limits = what, limits

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict({**state, "returns": np.zeros(self.spaces.num_envs), "left": None})
        self._left = self._limits() if self._limits else None
        logger.warning(f"{self._what} cannot be saved: new ones start, and the run is not an exact continuation")
