"""One single env that can be brought back in mid-episode, from the random state before its reset and its actions."""

from __future__ import annotations

from typing import Any

import numpy as np

from slm_lab.env.known import FRESH
from slm_lab.env.source import build
from slm_lab.env.spaces import ObsCodec
from slm_lab.lib.errors import RunError
from slm_lab.spec.schema import EnvSpec
from slm_lab.types import Array, Obs, State


class Slot:
    """A Gymnasium env whose open episode can be saved as plain data and replayed. `obs` and `info` are the latest."""

    def __init__(self, spec: EnvSpec, seed: int, render_mode: str | None = None) -> None:
        self._spec, self._seed, self._render_mode = spec, seed, render_mode
        self.env = build(spec, render_mode)
        self.codec = ObsCodec(self.env.observation_space)
        self._fresh = self.env.spec is not None and self.env.spec.id in FRESH
        self._rng: State | None = None  # random state before the last reset; None while that was the seeded one
        self._actions: list[Any] = []
        self._started = False
        self.obs: Any = None
        self.info: dict[str, Any] = {}

    def reset(self) -> Any:
        """First observation of the next episode; only the first reset is seeded."""
        if not self._started:
            self._started = True
            return self._begin(self._seed)
        random = self.env.unwrapped.np_random
        self._rng = dict(random.bit_generator.state)
        if self._fresh:
            self._rebuild()
            self.env.unwrapped.np_random = random
        return self._begin(None)

    def _rebuild(self) -> None:
        self.env.close()
        self.env = build(self._spec, self._render_mode)

    def _begin(self, seed: int | None) -> Any:
        self._actions = []
        try:
            self.obs, self.info = self.env.reset(seed=seed)
        except SystemExit as error:
            raise _left(error) from error
        return self.obs

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """The env's own step. The action must stay as it is: it is kept for replay."""
        self._actions.append(action)
        try:
            result = self.env.step(action)
        except SystemExit as error:
            raise _left(error) from error
        self.obs, self.info = result[0], result[4]
        return result

    def close(self) -> None:
        self.env.close()

    def state_dict(self) -> State:
        """The open episode; an env that was never reset has none."""
        obs = self.codec.encode(self.obs) if self._started else None
        actions = np.array(self._actions, self.env.action_space.dtype) if self._actions else None
        return {"seed": self._seed, "rng": self._rng, "actions": actions, "obs": obs}

    def load_state_dict(self, state: State) -> bool:
        """Bring an episode back; False when the env did not show the saved observation again."""
        self._seed, self._rng, self._started = int(state["seed"]), None, False
        self._rebuild()  # the saved seed was given to a new env too
        if state["obs"] is None:
            return True
        self.reset()
        if state["rng"] is not None:
            self.env.unwrapped.np_random.bit_generator.state = state["rng"]
            self.reset()
        same = self._replay(state["actions"])
        return same and _equal(self.codec.encode(self.obs), state["obs"])

    def _replay(self, actions: Array | None) -> bool:
        """Take the saved actions again; False, and a new episode, when it ends before they do."""
        rows = [] if actions is None else list(actions)
        for left, action in zip(range(len(rows) - 1, -1, -1), rows, strict=True):
            _, _, terminated, truncated, _ = self.step(action)
            if left and (terminated or truncated):
                self.reset()
                return False
        return True


def _left(error: SystemExit) -> RunError:
    """What to raise where an env would end the whole run, and with a code that says that all is well."""
    return RunError(f"the env called sys.exit({error.code!r})")


def _equal(left: Obs, right: Obs) -> bool:
    """Equal observations, NaN included."""
    if isinstance(left, dict) or isinstance(right, dict):
        ours, theirs = dict(left), dict(right)
        return ours.keys() == theirs.keys() and all(_equal(ours[key], theirs[key]) for key in ours)
    return np.array_equal(left, right, equal_nan=True)
