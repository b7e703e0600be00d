"""The memory of self-imitation: a rollout to learn from now, and finished episodes with their returns to imitate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import Field, SerializationInfo, model_serializer
from torch import Tensor

from slm_lab.agent.memory.base import MemoryBase, MemorySpec
from slm_lab.agent.memory.onpolicy import OnPolicyReplay
from slm_lab.agent.memory.replay import ReplaySpec, draw, flat_obs, nested_obs, obs_layout
from slm_lab.agent.memory.ring import Ring
from slm_lab.agent.memory.sampler import Sampler
from slm_lab.lib.rng import Rng
from slm_lab.types import Act, Batch, Cadence, Obs, Spaces, State, Step, map_obs

Shown = Callable[[Obs], Obs]  # observations as the env gives them -> as the agent sees them today


def as_shown(obs: Any, shown: Shown | None) -> Any:
    """Stored observations, tensors [B, ...], as the agent sees them today."""
    return obs if shown is None else map_obs(torch.from_numpy, shown(map_obs(lambda x: x.numpy(), obs)))


class ImitationKeys(MemorySpec):
    """`agent.memory` of SIL and PPOSIL: an on-policy and a replay memory, with the keys of both side by side."""

    name: str = Field(description="on-policy memory, one that ActorCritic and PPO take")
    sil_replay_name: str = Field(description="replay memory to imitate from: Replay or PrioritizedReplay")


class ImitationSpec(ImitationKeys):
    """The section parsed: keys that the on-policy memory knows are its own, the others are the replay memory's."""

    rollout: MemorySpec = Field(description="keys of the on-policy memory")
    replay: ReplaySpec = Field(description="keys of the replay memory")

    @model_serializer
    def as_section(self, info: SerializationInfo) -> dict[str, Any]:
        """The section as a spec holds it."""
        rollout, replay = (part.model_dump(mode=info.mode) for part in (self.rollout, self.replay))
        return {**replay, **rollout, "sil_replay_name": self.sil_replay_name}


class ReturnReplay:
    """A ring of (observation, action, return), drawn as the replay memory it is named after draws.

    Observations are kept as the env gave them; `shown` makes them what the agent would see today.
    """

    def __init__(
        self,
        spec: ReplaySpec,
        make_sampler: Callable[[Any, int], Sampler],
        spaces: Spaces,
        rng: Rng,
        shown: Shown | None = None,
    ) -> None:
        self.spec, self.rng, self.shown = spec, rng, shown
        action, ret = (spaces.action_shape, spaces.action_dtype), ((), np.dtype(np.float32))
        self.entries = list(obs_layout(spaces))
        self.ring = Ring({**obs_layout(spaces), "action": action, "ret": ret}, spec.max_size)
        self.sampler = make_sampler(spec, self.ring.slots)
        self.fresh = 0  # rows since the last batch

    def __len__(self) -> int:
        return self.ring.written - self.ring.first

    def extend(self, rows: Batch) -> None:
        """Store rows [B], each with its return to go as its reward."""
        obs = flat_obs(map_obs(lambda x: x.numpy(), rows.obs))
        self.sampler.added(self.ring.extend({**obs, "action": rows.action.numpy(), "ret": rows.reward.numpy()}))
        self.fresh += len(rows)

    def sample(self) -> Batch:
        """Rows [B], each the rest of its episode in one step: the return is its reward, and nothing follows."""
        index, weight = draw(self.spec, self.ring, self.sampler, self.rng, self.ring.first, self.fresh)
        self.fresh = 0
        rows = self.ring.take(torch.from_numpy(index))
        obs = as_shown(nested_obs({name: rows[name] for name in self.entries}), self.shown)
        extra = {"index": torch.from_numpy(index)}
        if weight is not None:
            extra["weight"] = torch.from_numpy(weight)
        over = torch.ones(len(index), dtype=torch.bool)
        return Batch(obs, rows["action"], rows["ret"], obs, over, ~over, extra)

    def feedback(self, batch: Batch, error: Tensor) -> None:
        """Told how much better than expected each row [B] was."""
        self.sampler.update(batch.extra["index"].cpu().numpy(), error.cpu().numpy())

    def state_dict(self) -> State:
        return {
            "rows": self.ring.rows_from("imitation", self.ring.first),
            "sampler": self.sampler.state_dict(),
            "rng": self.rng.state_dict(),
            "fresh": self.fresh,
        }

    def load_state_dict(self, state: State) -> None:
        self.ring.load_rows(state["rows"])
        self.sampler.load_state_dict(state["sampler"])
        self.rng.load_state_dict(state["rng"])
        self.fresh = state["fresh"]


class Imitation(MemoryBase):
    """Every step goes to the rollout, and to the episodes that wait for their end to be imitated."""

    Spec: ClassVar[type[MemorySpec]] = ImitationSpec
    kind: ClassVar = "on_policy"
    stores_raw: ClassVar = True  # the rollout gets what the agent acts on

    def __init__(self, rollout: MemoryBase, replay: ReturnReplay, spaces: Spaces) -> None:
        self.rollout, self.replay = rollout, replay
        self.episodes = OnPolicyReplay(MemorySpec(name="episodes"), spaces, Cadence(1, "episode"), {}, replay.rng)

    def add(self, obs: Obs, act: Act, step: Step) -> None:
        shown = self.replay.shown
        if shown is None:
            self.rollout.add(obs, act, step)
        else:
            self.rollout.add(shown(obs), act, step._replace(next_obs=shown(step.next_obs)))
        self.episodes.add(obs, act._replace(extra={}), step)

    def ready(self) -> bool:
        return self.rollout.ready()

    def sample(self) -> Batch:
        """What the rollout memory hands out."""
        return self.rollout.sample()

    def feedback(self, batch: Batch, error: Tensor) -> None:
        self.rollout.feedback(batch, error)

    def finished(self) -> Batch | None:
        """The episodes that ended since the last call end to end, [B, 1]; None where there are none.

        What follows them is as shown, to be valued; what they saw is raw, to be stored.
        """
        if not self.episodes.ready():
            return None
        batch = self.episodes.sample()
        return replace(batch, next_obs=as_shown(batch.next_obs, self.replay.shown))

    def state_dict(self) -> State:
        return {
            "rollout": self.rollout.state_dict(),
            "episodes": self.episodes.state_dict(),
            "replay": self.replay.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        self.rollout.load_state_dict(state["rollout"])
        self.episodes.load_state_dict(state["episodes"])
        self.replay.load_state_dict(state["replay"])
