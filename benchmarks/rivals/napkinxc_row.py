"""One row of the benchmark `linear` by napkinXC: ``PYTHON napkinxc_row.py FOLDER SETTINGS``.

Reads data.npz of the folder, trains and predicts with one thread, prints a line of JSON.
Settings: arguments of its model, and `model`, "PLT" (if not given) or "HSM".
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
from napkinxc import models


def main(folder: Path, settings: dict[str, str | float]) -> None:
    """Train, predict, print."""
    started = usage()
    kind = getattr(models, str(settings.pop("model", "PLT")))
    with np.load(folder / "data.npz", allow_pickle=False) as data:
        rows, ids, held_out = data["rows"], data["ids"], data["held_out"]
    with tempfile.TemporaryDirectory() as output:
        model = kind(output, threads=1, seed=0, **settings)
        before = usage()
        model.fit(rows, ids.tolist())
        trained = usage()
        top = model.predict(held_out, top_k=1)
        done = usage()
    row_of_table = {
        "version": version("napkinxc"),
        "held_out": float(np.mean([answer[:1] == [i] for i, answer in enumerate(top)])),
        "train": trained["s"] - before["s"],
        "predict": done["s"] - trained["s"],
        "start_mib": started["mib"],
        "peak_mib": usage()["mib"],
    }
    print(json.dumps(row_of_table))  # noqa: T201


def usage() -> dict[str, float]:
    """CPU seconds so far, and the peak of resident memory (Linux; since exec, unlike ru_maxrss)."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    peak = status.partition("VmHWM:")[2].split()[0]
    return {"s": time.process_time(), "mib": int(peak) / 1024}


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
