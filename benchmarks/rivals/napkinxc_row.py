"""One row of `linear` or `estimator` by napkinXC: ``PYTHON napkinxc_row.py FOLDER SETTINGS``.

Reads data.npz of the folder, trains and predicts with one thread, prints a line of JSON.
Settings: arguments of its model, `model`, "PLT" (if not given) or "HSM", and `top_k`, labels to
answer a row (1 if not given).
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import numpy as np
from napkinxc import models
from scipy.sparse import csr_matrix


def main(folder: Path, settings: dict[str, str | float]) -> None:
    """Train, predict, print."""
    started = usage()
    kind = getattr(models, str(settings.pop("model", "PLT")))
    top_k = int(settings.pop("top_k", 1))
    with np.load(folder / "data.npz", allow_pickle=False) as data:
        rows, held_out = matrix(data, "rows"), matrix(data, "held_out")
        ids, truth = data["ids"], data.get("held_out_ids", np.arange(held_out.shape[0]))
    with tempfile.TemporaryDirectory() as output:
        model = kind(output, threads=1, seed=0, **settings)
        before = usage()
        model.fit(rows, ids.tolist())
        trained = usage()
        top = model.predict(held_out, top_k=top_k)
        done = usage()
    row_of_table = {
        "version": version("napkinxc"),
        "held_out": float(np.mean([a[:1] == [i] for i, a in zip(truth, top, strict=True)])),
        "top_k": float(np.mean([i in a for i, a in zip(truth, top, strict=True)])),
        "train": trained["s"] - before["s"],
        "predict": done["s"] - trained["s"],
        "start_mib": started["mib"],
        "peak_mib": usage()["mib"],
    }
    print(json.dumps(row_of_table))  # noqa: T201


def matrix(data: Mapping[str, np.ndarray], name: str) -> np.ndarray | csr_matrix:
    """A dense matrix, or a sparse one from its three arrays."""
    if name in data:
        return data[name]
    parts = tuple(data[f"{name}_{part}"] for part in ("data", "indices", "indptr"))
    return csr_matrix(parts, shape=tuple(data[f"{name}_shape"]))


def usage() -> dict[str, float]:
    """CPU seconds so far, and the peak of resident memory (Linux; since exec, unlike ru_maxrss)."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    peak = status.partition("VmHWM:")[2].split()[0]
    return {"s": time.process_time(), "mib": int(peak) / 1024}


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
