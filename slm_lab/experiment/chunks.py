"""What a memory holds, in files of its own: each row is written once, and a checkpoint names the files it needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from slm_lab.experiment import checkpoint
from slm_lab.experiment.paths import Paths
from slm_lab.types import Array, Rows


class Chunk(NamedTuple):
    """A file with the rows start <= row < stop."""

    start: int
    stop: int
    sha256: str  # a session that went back to an older checkpoint may write other rows under the same name


class ChunkStore:
    """A session's chunk files; knows which rows of each memory are on disk already."""

    def __init__(self, paths: Paths) -> None:
        self.paths = paths
        self.known = dict[str, list[Chunk]]()  # of the checkpoint last saved or loaded

    def put(self, rows: Rows) -> dict[str, Any]:
        """Write the rows that are not on disk yet; where to find all of them."""
        chunks = [chunk for chunk in self.known.get(rows.name, []) if chunk.stop > rows.start]
        for start, stop, columns in _pieces(rows, chunks[-1].stop if chunks else rows.start):
            path = self.paths.chunk(rows.name, start, stop)
            chunks.append(Chunk(start, stop, checkpoint.save(path, columns)))
        self.known[rows.name] = chunks
        return {"start": rows.start, "stop": rows.stop, "chunks": chunks}

    def get(self, name: str, place: dict[str, Any]) -> Rows:
        """The rows that `put` wrote; every chunk is read once to see that it is there and whole."""
        chunks = _chunks(place)
        for chunk in chunks:
            self._read(name, chunk)

        def parts(first: int) -> Iterator[tuple[int, dict[str, Array]]]:
            for chunk in chunks:
                if chunk.stop > first:
                    yield _from_row(first, chunk, self._read(name, chunk))

        self.known[name] = chunks
        return Rows(name, place["start"], place["stop"], parts)

    def prune(self, predecessors: list[Path]) -> None:
        """Delete every chunk that neither the checkpoint just saved nor one of these names."""
        left = set(self.paths.chunks()) - self._files(self.known)
        if not left:
            return
        try:
            for path in predecessors:
                left -= self._files({name: _chunks(place) for name, place in checkpoint.row_places(path).items()})
        except checkpoint.CheckpointError:
            return  # what it names cannot be known: it goes at the next save, and they with it
        for path in left:
            path.unlink(missing_ok=True)

    def _files(self, named: Mapping[str, list[Chunk]]) -> set[Path]:
        return {self.paths.chunk(name, chunk.start, chunk.stop) for name, chunks in named.items() for chunk in chunks}

    def _read(self, name: str, chunk: Chunk) -> dict[str, Array]:
        return checkpoint.load(self.paths.chunk(name, chunk.start, chunk.stop), sha256=chunk.sha256)


def _chunks(place: Mapping[str, Any]) -> list[Chunk]:
    return [Chunk(*chunk) for chunk in place["chunks"]]


def _pieces(rows: Rows, first: int) -> Iterator[tuple[int, int, dict[str, Array]]]:
    """The rows from `first` on as (start, stop, columns): a part goes up to the next one, the last to the end."""
    parts = rows.parts(first)
    part = next(parts, None)
    while part is not None:
        after = next(parts, None)
        yield part[0], after[0] if after else rows.stop, part[1]
        part = after


def _from_row(first: int, chunk: Chunk, columns: dict[str, Array]) -> tuple[int, dict[str, Array]]:
    """A chunk without the rows before `first`."""
    skip = max(0, first - chunk.start)
    share = {name: len(column) // (chunk.stop - chunk.start) * skip for name, column in columns.items()}
    return chunk.start + skip, {name: column[share[name] :] for name, column in columns.items()}
