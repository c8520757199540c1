#!/usr/bin/env bash
# What a machine with a GPU is needed for, in one command and without a network: key rows of the
# paper's CJK experiment (Inception V3), and the benchmarks of heads and decoding. Ends within
# MINUTES by training for fewer epochs where it must, but never fewer than four. Stopped, it goes on when started again.
#
#   benchmarks/gpu.sh [FOLDER]       tables, pictures and results.json there (default runs/gpu)
#
# Needs a GPU; for the rows also the eight CJK faces of scripts/install_fonts.sh.
#
# PYTHON   an interpreter with labelmapping[experiments,sklearn], default .venv/bin/python
# MINUTES  for all of it, default 25
# PARTS    of head, decode and cjk, default all three
# SIZES    classes of the head benchmark, default 100000 1000000 10000000
# TINY=1   a rehearsal on the CPU at sizes that say nothing, without decode
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-runs/gpu}
python=${PYTHON:-.venv/bin/python}
minutes=${MINUTES:-25}
parts=" ${PARTS:-head decode cjk} "
rows="one-hot simplex-3 joint-simplex-4 learned-4"
mkdir -p "$out"
export PYTHONPATH="$PWD/src${PYTHONPATH:+:$PYTHONPATH}"

has() { [[ $parts == *" $1 "* ]]; }

# Whatever is there, also of a start that was cut off.
collect() {
    "$python" - "$out" <<'END'
import csv, json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
found, rows = {}, folder / "cjk" / "results.json"
if rows.exists():
    found["cjk"] = json.loads(rows.read_text(encoding="utf-8"))
for path in sorted(folder.glob("*.csv")):
    with path.open(encoding="utf-8", newline="") as file:
        found[path.stem] = list(csv.DictReader(file))
(folder / "results.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")
END
    echo "$out/results.json"
}

# What is missing is said before anything is run.
TINY=${TINY:-} PARTS=$parts "$python" - <<'END'
import importlib.util, os, sys, torch
from labelmapping.datasets.fonts import KNOWN_FACES, installed_faces
missing = []
if not os.environ["TINY"] and not torch.cuda.is_available():
    missing.append("there is no GPU")
if "cjk" in os.environ["PARTS"].split():
    absent = [n for n in ("sklearn", "scipy", "torchvision") if importlib.util.find_spec(n) is None]
    if absent:
        missing.append(f"cjk needs {', '.join(absent)}")
    found = len(installed_faces())
    if found < (2 if os.environ["TINY"] else len(KNOWN_FACES)):
        missing.append(f"cjk needs all {len(KNOWN_FACES)} known faces, and {found} are installed")
sys.exit("; ".join(missing) or 0)
END
trap collect EXIT

if [[ -n ${TINY:-} ]]; then
    sizes="1000" device=cpu rounds=6 heads=(--rows "linear + cross-entropy" "mixed n=3 k=2")
else
    sizes=${SIZES:-100000 1000000 10000000} device=cuda rounds=60 heads=()
fi
# Benchmarks first: they are short, and what comes after may be cut off.
if has head && [[ ! -s $out/head.csv ]]; then
    # shellcheck disable=SC2086 # words
    "$python" -m benchmarks head --classes $sizes --hidden 0 --device $device \
        --memory 40 --loss-rounds $rounds "${heads[@]}" --csv "$out/head.csv"
fi
if has decode && [[ -z ${TINY:-} && ! -s $out/decode.csv ]]; then
    "$python" -m benchmarks decode --csv "$out/decode.csv"
fi
if has cjk; then
    if [[ -n ${TINY:-} ]]; then
        options="--profile quick --epochs 2 --steps 2 --accelerator cpu"
    else
        # Drawn once, outside of the time that epochs are chosen for.
        "$python" -c 'from labelmapping.datasets.cjk import load_cjk; load_cjk("uro-paper", side=139)'
        # A run that was begun keeps its length.
        [[ -s $out/epochs ]] ||
            "$python" -m benchmarks.inception_epochs $((minutes - SECONDS / 60)) >"$out/epochs"
        options="--profile paper --epochs $(<"$out/epochs") --accelerator gpu"
    fi
    # shellcheck disable=SC2086 # words
    "$python" -m labelmapping -v reproduce cjk $options --rows $rows --run-dir "$out/cjk"
fi
