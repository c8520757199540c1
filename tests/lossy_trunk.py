"""A trunk that can end its own process, or take its time: for tests of lost learners."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from torch import Tensor

from labelmapping.nn import SmallCnn


class LossyCnn(SmallCnn):
    """A small CNN; at its 20th training batch it kills its process unless `marker` is there.

    The one that does leaves the marker, so it happens once. `delay` is slept at every batch.
    """

    def __init__(self, marker: str, delay: float = 0.0, **options: Any) -> None:
        super().__init__(**options)
        self.marker, self.delay, self.batches = Path(marker), delay, 0

    def forward(self, images: Tensor) -> Tensor:
        if self.training:
            self.batches += 1
            time.sleep(self.delay)
            if self.batches == 20 and not self.marker.exists():
                self.marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(images)
