"""One row of `linear` or `estimator` by omikuji: ``PYTHON omikuji_row.py FOLDER SETTINGS``.

Reads train.txt and held_out.txt of the folder, trains and predicts with one thread, prints a line
of JSON. Settings: fields of its hyper-parameters, beam_size, and top_k, labels to answer a row (1
if not given).
"""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import version
from pathlib import Path

import omikuji
from omikuji._libomikuji import ffi, lib


def main(folder: Path, settings: dict[str, float]) -> None:
    """Train, predict each held-out row, print."""
    start = usage()
    beam, top_k = int(settings.pop("beam_size", 10)), int(settings.pop("top_k", 1))
    params = omikuji.Model.default_hyper_param()
    for name, value in settings.items():
        setattr(params, name, value)
    # What train_on_data does, in its two steps: the clock leaves reading the file out.
    threads = omikuji._ThreadPoolHandle(1)
    path = ffi.new("char[]", str(folder / "train.txt").encode())
    data = ffi.gc(lib.load_omikuji_data_set(path, threads.ptr), lib.free_omikuji_data_set)
    started = time.process_time()
    model = omikuji.Model(lib.train_omikuji_model(data, params, threads.ptr))
    train = time.process_time() - started
    model.init_prediction_thread_pool(1)
    hits, hits_of_k, n_rows, predict = 0, 0, 0, 0.0
    with (folder / "held_out.txt").open(encoding="utf-8") as file:
        next(file)
        for line in file:
            label, *pairs = line.split()
            row = [(int(i), float(x)) for i, x in (pair.split(":") for pair in pairs)]
            started = time.process_time()
            top = model.predict(row, beam_size=beam, top_k=top_k)
            predict += time.process_time() - started
            hits += top[0][0] == int(label)
            hits_of_k += int(label) in [found for found, _ in top]
            n_rows += 1
    row_of_table = {
        "version": version("omikuji"),
        "held_out": hits / n_rows,
        "top_k": hits_of_k / n_rows,
        "train": train,
        "predict": predict,
        "start_mib": start["mib"],
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
