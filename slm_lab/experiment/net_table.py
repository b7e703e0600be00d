"""Nets as text: aligned columns, which read well in a terminal and in a file."""

from __future__ import annotations

from collections.abc import Sequence

from slm_lab.experiment.describe import Description, NetSummary


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
    rows = [
        (layer.path, layer.kind, str(list(layer.shape)), f"{layer.params:,}" if layer.params else "")
        for layer in net.layers
    ]
    return "\n".join([head, *aligned(rows)])


def aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows as lines, columns as wide as their widest entry; the last column to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))] if rows else []
    return [
        "  "
        + "  ".join(
            [*(cell.ljust(width) for cell, width in zip(row[:-1], widths[:-1], strict=True)), row[-1].rjust(widths[-1])]
        ).rstrip()
        for row in rows
    ]
