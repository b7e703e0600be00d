"""A trained agent outside of training: played in its env, or asked for actions from Python."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from slm_lab.agent import Agent, Player, make_agent
from slm_lab.agent.plan import plan_agent
from slm_lab.env import make_adapter, make_env
from slm_lab.env.watch import Watch
from slm_lab.env.window import Window
from slm_lab.experiment import checkpoint
from slm_lab.experiment.control import read_saved
from slm_lab.experiment.evaluate import play
from slm_lab.experiment.paths import Paths
from slm_lab.lib.errors import LabError
from slm_lab.lib.io import read_json
from slm_lab.lib.rng import Consumer, Rng
from slm_lab.spec.schema import Spec
from slm_lab.types import Spaces


@dataclass(frozen=True)
class Trained:
    """A saved spec and which session's best policy to take."""

    spec: Spec
    paths: Paths


def find_trained(target: Path) -> Trained:
    """The best session of a run folder or trial spec file; the very session where its own spec file is given."""
    files = sorted(target.glob("*_t*_spec.json")) if target.is_dir() else [target]
    if not files or not files[0].is_file():
        raise LabError(f"{target}: no trained run here: expected a run folder or the spec file in one.")
    spec = read_saved(min(files, key=lambda path: len(path.name)))
    paths = Paths(files[0].parent, spec.name, spec.meta.trial or 0)
    wanted = range(spec.meta.max_session) if spec.meta.session is None else [spec.meta.session]
    sessions = [paths.for_session(k) for k in wanted]
    with_best = [session for session in sessions if session.best.exists()]
    if not with_best:
        raise LabError(f"{target}: no trained policy: there is no {sessions[0].best.name} in its model folder.")
    return Trained(spec, max(with_best, key=_score))


def _score(paths: Paths) -> float:
    """A session's total_reward_ma; one that never finished ranks last."""
    path = paths.session_scalar("train")
    score = read_json(path).get("total_reward_ma") if path.exists() else None
    return -math.inf if score is None else float(score)


def restore(trained: Trained, spaces: Spaces) -> Agent:
    """The agent with its best weights and observation statistics, for envs with these spaces."""
    spec = trained.spec
    plan = plan_agent(spec.agent, spec.env.num_envs, [])  # as it was trained: batches depend on it
    agent = make_agent(plan, spec.env, spaces, (0, 0, 0))
    agent.load_policy_state(checkpoint.load(trained.paths.best))
    return agent


def enjoy(
    trained: Trained, episodes: int, deterministic: bool, watch: Watch | None = None, seed: int = 0
) -> list[float]:
    """Raw returns of a trained agent's episodes. Reads the run and writes nothing."""
    key = (seed, trained.paths.trial, trained.paths.session or 0)
    env = make_env(trained.spec.env.in_process(1), 0.99, key, training=False, watch=watch)
    try:
        agent = restore(trained, env.spaces)
        return play(Player(agent, 1), env, episodes, None if deterministic else Rng(*key, Consumer.EVAL))
    finally:
        env.close()


def window(trained: Trained) -> Window:
    """A window for `enjoy` to show its episodes in, at the pace of their world."""
    return Window(trained.spec.name, paced=True)


class TrainedAgent:
    """A trained agent's actions, with its normaliser, observation handling and action scaling inside."""

    def __init__(self, path: Path) -> None:
        trained = find_trained(path)
        self.spec = trained.spec
        self.adapter = make_adapter(self.spec.env.in_process(1))
        self.agent = restore(trained, self.adapter.spaces)
        self.player = Player(self.agent, 1)
        self.rng = Rng(0, 0, 0, Consumer.EVAL)

    def act(self, obs: Any, deterministic: bool = True, action_mask: Any = None) -> Any:
        """The action for one observation as the env gives it, ready for env.step.

        `action_mask` is what the env gives in `info`; one that is part of the observation is found there.
        """
        mask = self.adapter.mask(obs, action_mask)
        action = self.player(self.adapter.encode(obs), mask, None if deterministic else self.rng)
        self.player.ended(np.zeros(1, bool))
        return self.adapter.action(action)

    def reset(self) -> None:
        """Forget the episode so far: to be called at the start of each where the policy has a memory."""
        self.player = Player(self.agent, 1)
