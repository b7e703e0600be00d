"""Nets as text."""

from __future__ import annotations

from slm_lab.experiment.describe import Description, NetSummary
from slm_lab.lib.columns import columns


def table(description: Description) -> str:
    """Each net with its layers, targets by name alone, and how many parameters learn."""
    if not description.nets:
        return "no nets: nothing is learnt"
    blocks = [_block(net) for net in description.nets if not net.target]
    targets = [f"{net.path}: a copy that follows; {net.params:,} parameters" for net in description.nets if net.target]
    if targets:
        blocks.append("\n".join(targets))
    return "\n\n".join([*blocks, f"{description.learnt:,} parameters learn"])


def _block(net: NetSummary) -> str:
    head = f"{net.path}: takes {net.takes}; {net.params:,} parameters"
    counts = [f"{layer.params:,}" if layer.params else "" for layer in net.layers]
    widest = max(map(len, counts), default=0)
    rows = [
        (layer.path, layer.kind, str(list(layer.shape)), count.rjust(widest))
        for layer, count in zip(net.layers, counts, strict=True)
    ]
    return "\n".join([head, *(f"  {line}" for line in columns(rows))])
