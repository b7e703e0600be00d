"""TensorBoard events of one session."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path


class Events:
    """Scalars over frames. A resumed session drops what an interrupted one wrote after its checkpoint."""

    def __init__(self, folder: Path, frame: int) -> None:
        from torch.utils.tensorboard import SummaryWriter  # costs a second

        self.writer = SummaryWriter(str(folder), purge_step=frame + 1)

    def write(self, values: Mapping[str, float], frame: int) -> None:
        for name, value in values.items():
            if name != "frame" and not math.isnan(value):
                self.writer.add_scalar(name, value, frame)

    def close(self) -> None:
        self.writer.close()
