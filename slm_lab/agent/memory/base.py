"""What all memories share: their spec, and how they are built."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from slm_lab.spec.parse import Model
from slm_lab.types import Cadence, Memory, Shape, Spaces


class MemorySpec(Model):
    """Keys every memory takes."""

    name: str = Field(description="memory class, or `module:Class` of your own")


class MemoryBase(Memory):
    """A memory that a spec can name."""

    Spec: ClassVar[type[MemorySpec]]
    kind: ClassVar[Literal["on_policy", "replay"]]
    unit: ClassVar[Literal["step", "frame", "episode"]]  # what its cadence counts

    def __init__(self, spec: MemorySpec, spaces: Spaces, cadence: Cadence, extra: dict[str, Shape]) -> None: ...
