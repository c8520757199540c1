"""One row of the benchmark `linear` by PECOS XLinear: ``PYTHON pecos_row.py FOLDER SETTINGS``.

Reads data.npz of the folder, trains and predicts with one thread, prints a line of JSON.
Settings: `index` (arguments of its clustering), `train` and `predict` (of its model).
"""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.xlinear.model import XLinearModel
from scipy.sparse import csr_matrix


def main(folder: Path, settings: dict[str, dict[str, Any]]) -> None:
    """Cluster the labels, train, predict, print."""
    started = usage()
    with np.load(folder / "data.npz", allow_pickle=False) as data:
        rows, held_out = csr_matrix(data["rows"]), csr_matrix(data["held_out"])
        ids = data["ids"]
    ones = np.ones(len(ids), np.float32)
    labels = csr_matrix((ones, (np.arange(len(ids)), ids)), shape=(len(ids), held_out.shape[0]))
    before = usage()
    chain = Indexer.gen(
        LabelEmbeddingFactory.create(labels, rows, method="pifa"),
        indexer_type="hierarchicalkmeans",
        threads=1,
        seed=0,
        **settings.get("index", {}),
    )
    model = XLinearModel.train(rows, labels, C=chain, threads=1, **settings.get("train", {}))
    trained = usage()
    top = model.predict(held_out, only_topk=1, threads=1, **settings.get("predict", {}))
    done = usage()
    answers = csr_matrix(top).indices  # one a row
    row_of_table = {
        "version": version("libpecos"),
        "held_out": float(np.mean(answers == np.arange(held_out.shape[0]))),
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
