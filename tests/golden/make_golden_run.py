"""Writes ``run-format-1.json``: a run folder that all later versions must read. Made once.

Run from the root: ``python -m tests.golden.make_golden_run``. The folder's text files, rows and
answers are kept; its weights are not, since their bytes follow from a rule (`write_weights`).
"""

import json
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from labelmapping import MixedMapping
from labelmapping.learners import Ensemble, LearnerRecipe, LearningData, RunFolder, train
from labelmapping.learners.site import weights_file

KEPT = Path(__file__).parent / "run-format-1.json"
LABELS = ["甲", "乙", "丙", "01", "1 ", "é"]
TEXTS = ("labels.json", "run.json", "site-*/*.json", "site-*/*.csv")
# Names and shapes of the weights, as the first version wrote them.
SHAPES = {
    "trunk.convolutions.0.weight": (4, 1, 3, 3),
    "trunk.convolutions.1.weight": (4,),
    "trunk.convolutions.1.bias": (4,),
    "trunk.convolutions.1.running_mean": (4,),
    "trunk.convolutions.1.running_var": (4,),
    "trunk.dense.weight": (8, 16),
    "trunk.dense.bias": (8,),
    "trunk.norm.weight": (8,),
    "trunk.norm.bias": (8,),
    "trunk.norm.running_mean": (8,),
    "trunk.norm.running_var": (8,),
}
COUNTERS = ("trunk.convolutions.1.num_batches_tracked", "trunk.norm.num_batches_tracked")


def write_weights(folder: Path) -> None:
    """The three learners' weights after the first epoch and the last: the same bytes anywhere."""
    for site, symbols in enumerate((3, 4, 5)):
        place = folder / f"site-{site:02d}"
        place.mkdir(exist_ok=True)
        shapes = {**SHAPES, "head.output.weight": (symbols, 8), "head.output.bias": (symbols,)}
        for epoch in (1, None):
            state: dict[str, Tensor] = {name: torch.tensor(30) for name in COUNTERS}
            for n, (name, shape) in enumerate(shapes.items()):
                places = torch.arange(1, torch.Size(shape).numel() + 1)
                mixed = places * (40503 + 2 * n) + 97 * site + 13 * (epoch or 0)
                exact = ((mixed >> 3) % 256 - 128) / 128  # no rounding
                if name.endswith(("bias", "_mean")):
                    exact = exact / 16  # so that the rows decide
                state[name] = (exact / 2 + 1 if name.endswith("_var") else exact).reshape(shape)
            safetensors.torch.save_file(state, weights_file(place, epoch))


def main() -> None:
    """Train on noise, put the rule's weights in the place of the trained ones, and ask them."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    ids = torch.arange(len(LABELS)).repeat(8)
    rows = (torch.randint(0, 2, (len(ids), 4, 4), generator=generator) * 255).to(torch.uint8)
    recipe = LearnerRecipe(
        mapping=MixedMapping(len(LABELS), [3, 4, 5], dimension=2),
        trunk="labelmapping.nn:SmallCnn",
        trunk_options={"side": 4, "widths": [4], "out_features": 8},
        epochs=3,
        batch_size=12,
        keep_epochs=(1,),
    )
    folder = KEPT.with_suffix("")
    data = LearningData(rows, ids, rows[:12], ids[:12], LABELS)
    run = train(recipe, data, folder, accelerator="cpu")
    write_weights(folder)
    content = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    for site in recipe.learners():
        del content["sites"][f"site-{site:02d}"]["sha256"]
    (folder / "run.json").write_text(json.dumps(content), encoding="utf-8")
    run = RunFolder.load(folder)
    for site in recipe.learners():
        run.record(site, run.report(site))  # with the checksums of these weights
    ensemble = Ensemble.load(folder)
    kept = {
        "files": {
            str(path.relative_to(folder)): path.read_text(encoding="utf-8")
            for pattern in TEXTS
            for path in sorted(folder.glob(pattern))
        },
        "rows": rows.tolist(),
        "predictions": ensemble.predict(rows),
        "site_log_probs": [p.round(5).tolist() for p in ensemble.site_log_probs(rows)],
    }
    text = json.dumps(kept, ensure_ascii=False)
    KEPT.write_text(text + "\n", encoding="utf-8")
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()


if __name__ == "__main__":
    main()
