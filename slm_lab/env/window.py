"""A window that shows an env while it runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from slm_lab.env.watch import Picture, enlarged
from slm_lab.lib.errors import RunError


class Window:
    """Shows each picture, at the env's own pace where `paced`. When its user closes it the env goes on unseen."""

    def __init__(self, title: str, paced: bool) -> None:
        self._title, self._paced = title, paced
        self._screen: Any = None
        self._closed = False

    def __call__(self, picture: Picture, rate: float, first: bool) -> None:
        if self._closed:
            return
        import pygame  # late: only those who look need it

        columns = np.swapaxes(enlarged(picture()), 0, 1)  # [W, H, 3], as pygame has them
        if self._screen is None:
            self._open(columns.shape[:2])
        pygame.surfarray.blit_array(self._screen, columns)
        pygame.display.flip()
        if any(event.type == pygame.QUIT for event in pygame.event.get()):
            self._closed = True
            pygame.display.quit()
        elif self._paced:
            self._clock.tick(rate)

    def _open(self, size: tuple[int, ...]) -> None:
        import pygame

        try:
            pygame.display.init()
            self._screen = pygame.display.set_mode(size)
        except pygame.error as error:
            raise RunError(
                f"--render: no window can be opened here ({error}). `slm-lab enjoy DIR --video FILE` needs no screen."
            ) from None
        pygame.display.set_caption(self._title)
        self._clock = pygame.time.Clock()
