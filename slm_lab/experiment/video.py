"""Videos of a trained agent: every episode is filmed, and the best, the median and the worst are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from slm_lab.env.watch import Picture, Watch, enlarged
from slm_lab.lib.errors import LabError
from slm_lab.types import Array

SMOOTH = 30  # pictures a second; envs that step more often are not drawn at each step
BANNER = 32  # pixels above the picture for what it shows


class Film:
    """Films episodes to files `0.mp4`, `1.mp4`, ... of a folder, in the order they are played."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._episode, self._step = -1, 0
        self._writer: Any = None
        self.rate = float(SMOOTH)  # pictures a second

    def __call__(self, picture: Picture, rate: float, first: bool) -> None:
        if first:
            self.close()
            self._episode, self._step = self._episode + 1, 0
        stride = max(1, round(rate / SMOOTH))
        if self._step % stride == 0:
            self.rate = rate / stride
            self._add(picture())
        self._step += 1

    def _add(self, pixels: Array) -> None:
        frame = np.ascontiguousarray(_even(enlarged(pixels)), np.uint8)
        if self._writer is None:
            self._writer = _writer(self.file(self._episode), frame, self.rate)
        self._writer.send(frame)

    def file(self, episode: int) -> Path:
        return self._folder / f"{episode}.mp4"

    def close(self) -> None:
        """End the file of the open episode."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def film(path: Path, play: Callable[[Watch], list[float]]) -> list[float]:
    """Returns of the episodes that `play` plays while somebody watches; the notable ones are a video at `path`."""
    if path.suffix != ".mp4":
        raise LabError(f"--video: got {path}; allowed: a file that ends in .mp4.")
    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as folder:
        take = Film(Path(folder))
        returns = play(take)
        take.close()
        scenes = [(take.file(i), f"{name}: return {returns[i]:.2f}") for i, name in notable(returns)]
        _join(path, scenes, take.rate)
    return returns


def notable(returns: Sequence[float]) -> list[tuple[int, str]]:
    """Which episodes to show and what to call them: best, median (the lower of two) and worst, each but once."""
    count = len(returns)
    if count == 1:
        return [(0, "episode")]
    order = sorted(range(count), key=lambda i: returns[i])
    chosen = {order[-1]: f"best of {count}", order[0]: f"worst of {count}"}
    chosen.setdefault(order[(count - 1) // 2], f"median of {count}")
    return sorted(chosen.items(), key=lambda item: -order.index(item[0]))


def _join(path: Path, scenes: list[tuple[Path, str]], rate: float) -> None:
    """One video of several, with a line above each that says what it is."""
    writer: Any = None
    for file, line in scenes:
        for pixels in _frames(file):
            frame = _captioned(pixels, line)
            writer = writer or _writer(path, frame, rate)
            writer.send(frame)
    writer.close()


def _writer(path: Path, frame: Array, rate: float) -> Any:
    from imageio_ffmpeg import write_frames  # late: only videos need it

    height, width = frame.shape[:2]
    writer = write_frames(str(path), (width, height), fps=rate, quality=8, macro_block_size=2, ffmpeg_log_level="error")
    writer.send(None)
    return writer


def _frames(path: Path) -> Iterator[Array]:
    """Pictures [H, W, 3] of a video file."""
    from imageio_ffmpeg import read_frames

    reader = read_frames(str(path))
    width, height = next(reader)["size"]
    for data in reader:
        yield np.frombuffer(data, np.uint8).reshape(height, width, 3)


def _even(pixels: Array) -> Array:
    """A picture with an even number of rows and columns, as the codec needs."""
    return np.pad(pixels, [(0, pixels.shape[0] % 2), (0, pixels.shape[1] % 2), (0, 0)], mode="edge")


def _captioned(pixels: Array, line: str) -> Array:
    """A picture [H, W, 3] below a dark banner with a line of text."""
    height, width, _ = pixels.shape
    image = Image.new("RGB", (width, height + BANNER), (24, 24, 24))
    image.paste(Image.fromarray(pixels), (0, BANNER))
    ImageDraw.Draw(image).text((8, BANNER // 2), line, (240, 240, 240), ImageFont.load_default(16), anchor="lm")
    return np.asarray(image)
