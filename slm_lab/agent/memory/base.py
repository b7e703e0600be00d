"""What all memories share: their spec, and how they are built."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor

from slm_lab.lib.rng import Rng
from slm_lab.spec.parse import Model
from slm_lab.types import Batch, Cadence, Memory, Shape, Spaces


class MemorySpec(Model):
    """Keys every memory takes."""

    name: str = Field(description="memory class, or `module:Class` of your own")


class MemoryBase(Memory):
    """A memory that a spec can name."""

    Spec: ClassVar[type[MemorySpec]]
    kind: ClassVar[Literal["on_policy", "replay"]]
    unit: ClassVar[Literal["step", "frame", "episode"]]  # what its cadence counts
    stores_raw: ClassVar[bool] = False  # observations as the env gave them, or as the agent acted on them?

    def __init__(
        self, spec: MemorySpec, spaces: Spaces, cadence: Cadence, extra: dict[str, Shape], rng: Rng
    ) -> None: ...

    def feedback(self, batch: Batch, error: Tensor) -> None:
        """Told how wrong the learner was about each row of a batch [B]; most memories do not care."""
        return

    @classmethod
    def bytes_needed(cls, spec: MemorySpec, spaces: Spaces) -> int:
        """What it will hold once full; 0 where that is a rollout's worth and not worth a word."""
        return 0
