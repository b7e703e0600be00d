"""Videos: which episodes are kept, and what the file holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from imageio_ffmpeg import read_frames

from slm_lab.env.watch import Watch
from slm_lab.experiment.video import BANNER, film, notable
from slm_lab.lib.errors import LabError
from slm_lab.types import Array

RED, GREEN, BLUE = (200, 0, 0), (0, 200, 0), (0, 0, 200)


def frames(path: Path) -> tuple[dict[str, Any], list[Array]]:
    reader = read_frames(str(path))
    about = next(reader)
    width, height = about["size"]
    return about, [np.frombuffer(data, np.uint8).reshape(height, width, 3) for data in reader]


def plain(colour: tuple[int, int, int], height: int = 400, width: int = 500) -> Array:
    return np.full((height, width, 3), colour, np.uint8)


def show(watch: Watch, colour: tuple[int, int, int], steps: int, rate: float = 25) -> None:
    """An episode: its start and its steps."""
    for step in range(steps + 1):
        watch(lambda: plain(colour), rate, first=step == 0)


def colours(path: Path) -> list[str]:
    """Which colour each frame below the banner has."""
    return ["RGB"[int(frame[BANNER + 10, 10].argmax())] for frame in frames(path)[1]]


def test_best_median_and_worst_are_notable_each_once() -> None:
    assert notable([7.0]) == [(0, "episode")]
    assert notable([1.0, 5.0]) == [(1, "best of 2"), (0, "worst of 2")]
    assert notable([3.0, 9.0, 1.0]) == [(1, "best of 3"), (0, "median of 3"), (2, "worst of 3")]
    # of four, 2 and 3 are in the middle: the lower is the median
    assert notable([3.0, 9.0, 1.0, 2.0]) == [(1, "best of 4"), (3, "median of 4"), (2, "worst of 4")]


def test_a_video_shows_the_notable_episodes_in_order(tmp_path: Path) -> None:
    def play(watch: Watch) -> list[float]:
        for colour, steps in ((RED, 4), (GREEN, 6), (BLUE, 2)):
            show(watch, colour, steps)
        show(watch, RED, 0)  # the start of an episode that is never played
        return [5.0, 1.0, 9.0]

    path = tmp_path / "deep" / "v.mp4"
    assert film(path, play) == [5.0, 1.0, 9.0]
    about, _ = frames(path)
    assert about["size"] == (500, 400 + BANNER)
    assert about["fps"] == 25
    assert "".join(colours(path)) == "B" * 3 + "R" * 5 + "G" * 7


def test_fast_worlds_are_drawn_at_some_steps_only(tmp_path: Path) -> None:
    drawn = list[int]()

    def play(watch: Watch) -> list[float]:
        for step in range(13):
            watch(lambda step=step: (drawn.append(step), plain(RED))[1], 125.0, first=step == 0)  # type: ignore[misc]
        return [0.0]

    film(tmp_path / "v.mp4", play)
    assert drawn == [0, 4, 8, 12]  # 125 / 30 is nearest to 4
    assert frames(tmp_path / "v.mp4")[0]["fps"] == 31.25


def test_a_line_says_what_is_shown(tmp_path: Path) -> None:
    def play(watch: Watch) -> list[float]:
        show(watch, RED, 2)
        return [0.0]

    film(tmp_path / "v.mp4", play)
    banner = frames(tmp_path / "v.mp4")[1][0][: BANNER - 2]
    assert banner.max() > 150  # letters
    assert np.median(banner) < 60  # on dark ground


def test_odd_and_small_pictures_are_made_to_fit(tmp_path: Path) -> None:
    def play(watch: Watch) -> list[float]:
        watch(lambda: plain(GREEN, 211, 161), 15.0, first=True)
        return [0.0]

    film(tmp_path / "v.mp4", play)
    assert frames(tmp_path / "v.mp4")[0]["size"] == (322, 422 + BANNER)


def test_another_kind_of_file_is_refused_before_anything_is_played(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"--video: got .*v\.gif; allowed: a file that ends in \.mp4"):
        film(tmp_path / "v.gif", lambda watch: pytest.fail("played"))
