#!/usr/bin/env bash
# What a machine with a GPU is needed for, in one command and without a network: key rows of the
# paper's CJK experiment (Inception V3), and the benchmarks of heads and decoding. Ends within
# MINUTES by training for fewer epochs where it must.
#
#   benchmarks/gpu.sh [FOLDER]       tables, pictures and results.json there (default runs/gpu)
#
# PYTHON   an interpreter with labelmapping[experiments,sklearn], default .venv/bin/python
# MINUTES  for the rows of the experiment, default 18
# TINY=1   a rehearsal on the CPU at sizes that say nothing
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-runs/gpu}
python=${PYTHON:-.venv/bin/python}
minutes=${MINUTES:-18}
mkdir -p "$out"
export PYTHONPATH="$PWD/src${PYTHONPATH:+:$PYTHONPATH}"
rows="one-hot simplex-3 joint-simplex-4 learned-4"

if [[ -n ${TINY:-} ]]; then
    cjk="--profile quick --epochs 2 --steps 2 --accelerator cpu"
    sizes="1000" hidden="0" device=cpu
else
    "$python" -c 'import sys, torch; sys.exit(0 if torch.cuda.is_available() else "there is no GPU")'
    epochs=$("$python" -m benchmarks.inception_epochs "$minutes")
    cjk="--profile paper --epochs $epochs --accelerator gpu"
    sizes="10000 100000 1000000 10000000 100000000" hidden="0 1024" device=cuda
fi

# Benchmarks first: they are short, and what comes after may be cut off.
"$python" -m benchmarks head --classes $sizes --hidden $hidden --device $device \
    --memory 40 --csv "$out/head.csv"
[[ -n ${TINY:-} ]] || "$python" -m benchmarks decode --csv "$out/decode.csv"
"$python" -m labelmapping -v reproduce cjk $cjk --rows $rows --run-dir "$out/cjk"
"$python" - "$out" <<'END'
import csv, json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
found = {"cjk": json.loads((folder / "cjk" / "results.json").read_text(encoding="utf-8"))}
for path in sorted(folder.glob("*.csv")):
    with path.open(encoding="utf-8", newline="") as file:
        found[path.stem] = list(csv.DictReader(file))
(folder / "results.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")
END
echo "$out/results.json"
