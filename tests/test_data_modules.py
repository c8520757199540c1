"""The ready-made data modules: what they read, hold out and refuse, and that batches come again."""

from __future__ import annotations

import os
import pickle
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader

from labelmapping import MixedMapping
from labelmapping.data_modules import ImageFolders, ParquetRows, TokenSequences
from labelmapping.data_modules.rows import RowsModule
from labelmapping.datasets.sequences import read_sequences
from labelmapping.errors import (
    ArgumentError,
    ArgumentTypeError,
    DataNotFoundError,
    MissingExtraError,
)
from labelmapping.labels import LookalikeLabelsWarning
from labelmapping.learners.data import EpochBatches
from labelmapping.nn.trunks import NextItemAttention, NextWordLstm, SmallCnn

M = TypeVar("M", bound=RowsModule)


def fitted(module: M) -> M:
    module.setup("fit")
    return module


def collect(loader: Any) -> tuple[Tensor, Tensor]:
    """All inputs and ids that a loader gives."""
    parts = list(loader)
    return torch.cat([inputs for inputs, _ in parts]), torch.cat([ids for _, ids in parts])


def answers(module: RowsModule, stage: str) -> Any:
    module.setup(stage)
    return getattr(module, f"{stage}_dataloader")()


def epoch(module: RowsModule, number: int) -> list[tuple[Tensor, Tensor]]:
    loader = module.train_dataloader()
    assert isinstance(loader.sampler, EpochBatches)
    loader.sampler.set_epoch(number)
    return list(loader)


# --- images


def draw(root: Path, colours: dict[str, Sequence[int]], size: tuple[int, int] = (5, 7)) -> Path:
    """A plain image for each number of each class: its red; its green is 200."""
    for label, reds in colours.items():
        (root / label).mkdir(parents=True, exist_ok=True)
        for number, red in enumerate(reds):
            Image.new("RGB", size, (red, 200, 0)).save(root / label / f"{number:03d}.png")
    return root


def test_images_come_as_the_trunk_takes_them(tmp_path: Path) -> None:
    root = draw(tmp_path, {"b": [10, 20], "a": [30], "10": [40]})
    (root / "a" / "below").mkdir()
    Image.new("L", (3, 3), 7).save(root / "a" / "below" / "grey.JPG", format="PNG")
    (root / "a" / "notes.txt").write_text("no image")
    (root / ".thumbnails").mkdir()
    module = fitted(ImageFolders(str(root), side=8, held_out=0))
    assert module.labels == ["10", "a", "b"]
    assert module.class_counts().tolist() == [1, 2, 2]
    images, ids = collect(epoch(module, 0))
    assert (images.dtype, images.shape) == (torch.uint8, (5, 3, 8, 8))
    assert {(int(i), int(image[0, 0, 0])) for image, i in zip(images, ids, strict=True)} == {
        (0, 40),
        (1, 30),
        (1, 7),
        (2, 10),
        (2, 20),
    }
    grey = fitted(ImageFolders(str(root), side=(8, 9), channels="grey", held_out=0))
    assert collect(epoch(grey, 0))[0].shape == (5, 8, 9)
    square = fitted(ImageFolders(str(root), side=8, channels="grey", held_out=0))
    assert SmallCnn(8)(epoch(square, 0)[0][0]).shape == (5, 128)


def test_heights_come_before_widths(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    pixels = np.zeros((2, 6), np.uint8)
    pixels[0] = 255
    for name in ("0.png", "1.png"):
        Image.fromarray(pixels).save(tmp_path / "a" / name)
    module = fitted(ImageFolders(str(tmp_path), side=(2, 6), channels="grey", held_out=0))
    images, _ = collect(epoch(module, 0))
    assert np.array_equal(images[0].numpy(), pixels)


def test_tests_and_predictions_of_images_come_in_order(tmp_path: Path) -> None:
    root = draw(tmp_path / "train", {"a": [1, 2], "b": [3, 4]})
    others = draw(tmp_path / "test", {"b": [5], "new": [6, 7], "a": [8]})
    module = ImageFolders(
        str(root), side=4, test_root=str(others), predict_root=str(others), batch_size=3
    )
    with pytest.warns(UserWarning, match=r"2 rows of the test have labels .*'new'"):
        loader = answers(module, "test")
    images, ids = collect(loader)
    assert images[:, 0, 0, 0].tolist() == [8, 5, 6, 7]
    assert ids.tolist() == [0, 1, -1, -1]
    assert module.labels == ["a", "b"]
    names = [name for _, part in answers(module, "predict") for name in part]
    assert names == ["a/000.png", "b/000.png", "new/000.png", "new/001.png"]


def test_files_are_decoded_when_their_batch_is_read_and_named_when_damaged(tmp_path: Path) -> None:
    root = draw(tmp_path, {"a": [1, 2], "b": [3, 4]})
    damaged = root / "b" / "001.png"
    damaged.write_bytes(damaged.read_bytes()[:45])
    module = fitted(ImageFolders(str(root), held_out=0, batch_size=1))
    assert module.class_counts().tolist() == [2, 2]
    with pytest.raises(ArgumentError, match=r"b/001\.png must be an image that can be decoded"):
        list(module.train_dataloader())
    Image.fromarray(np.full((4, 4), 40_000, np.uint16)).save(damaged)
    with pytest.raises(ArgumentError, match=r"b/001\.png must have 8 bits a channel.*I;16"):
        list(module.train_dataloader())


def test_transparent_palettes_are_read_without_a_warning(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    image = Image.new("P", (2, 2), 1)
    image.putpalette([0, 0, 0, 9, 8, 7])
    for name in ("0.png", "1.png"):
        image.save(tmp_path / "a" / name, transparency=b"\x00\x80")
    images, _ = collect(epoch(fitted(ImageFolders(str(tmp_path), held_out=0)), 0))
    assert images[0, :, 0, 0].tolist() == [9, 8, 7]


def test_folders_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataNotFoundError, match=r"root must be a folder, .*nowhere"):
        ImageFolders(str(tmp_path / "nowhere")).setup("fit")
    with pytest.raises(ArgumentError, match="root must have a folder for each class"):
        ImageFolders(str(tmp_path)).setup("fit")
    root = draw(tmp_path, {"a": [1, 2]})
    for label in ("empty", "void"):
        (root / label).mkdir()
    (root / "void" / "notes.txt").touch()
    with pytest.raises(
        ArgumentError, match=r"an image .* in every class folder; .*'empty', 'void'"
    ):
        ImageFolders(str(root)).setup("fit")
    with pytest.raises(ArgumentError, match="predict_root must have images below it"):
        ImageFolders(str(root), predict_root=str(root / "empty")).setup("predict")
    with pytest.raises(ArgumentError, match="test_root must be given"):
        ImageFolders(str(root)).setup("test")


def test_links_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    root = draw(tmp_path / "root", {"a": [1, 2]})
    elsewhere = draw(tmp_path / "other", {"deep": [3, 4]})
    (root / "b").symlink_to(elsewhere)
    module = fitted(ImageFolders(str(root), held_out=0))
    assert module.class_counts().tolist() == [2, 2]
    (elsewhere / "deep" / "up").symlink_to(elsewhere)
    with pytest.raises(ArgumentError, match="deep/up must be no link to a folder that it lies in"):
        ImageFolders(str(root)).setup("fit")
    (elsewhere / "deep" / "up").unlink()
    (elsewhere / "gone.png").symlink_to(elsewhere / "nothing")
    with pytest.raises(ArgumentError, match=r"root must have files that can be read: .*gone\.png"):
        ImageFolders(str(root)).setup("fit")


def test_labels_that_are_no_unicode_are_refused(tmp_path: Path) -> None:
    draw(tmp_path, {"a": [1, 2]})
    os.mkdir(os.fsencode(tmp_path) + b"/\xff")
    with pytest.raises(ArgumentError, match=r"names are Unicode, got '.*udcff'"):
        ImageFolders(str(tmp_path)).setup("fit")


def test_fingerprints_of_images_cover_names_and_sizes_or_contents(tmp_path: Path) -> None:
    def made(root: Path, **options: Any) -> str:
        return fitted(ImageFolders(str(root), **options)).fingerprint()

    first = draw(tmp_path / "one", {"a": [1, 2, 3], "b": [4, 5, 6]})
    again = draw(tmp_path / "two", {"a": [1, 2, 3], "b": [4, 5, 6]})
    assert made(first) == made(again)
    assert made(first, check_contents=True) == made(again, check_contents=True) != made(first)
    assert len({made(first, seed=1), made(first), made(first, batch_size=4)}) == 3
    data = bytearray((again / "b" / "002.png").read_bytes())
    data[-1] ^= 1
    (again / "b" / "002.png").write_bytes(data)
    assert made(first) == made(again)
    assert made(first, check_contents=True) != made(again, check_contents=True)
    (again / "b" / "002.png").write_bytes(data + b"\0")
    assert made(first) != made(again)


# --- what is held out, and in what order rows come


def table(path: Path, labels: Sequence[Any], **columns: Any) -> str:
    """Rows whose one feature, unless others are given, is the number of the row."""
    columns = columns or {"x": np.arange(len(labels), dtype=np.float64)}
    pq.write_table(pa.table({"y": pa.array(labels), **columns}), path)
    return str(path)


def rows_of(loader: Any) -> list[int]:
    return [int(x) for x in collect(loader)[0][:, 0]]


def test_N05_singletons_stay_in_training(tmp_path: Path) -> None:
    labels = [*(f"one {i}" for i in range(600)), *(f"two {i % 200}" for i in range(400))]
    module = ParquetRows(table(tmp_path / "a.parquet", labels), label="y", held_out=0.3)
    with pytest.warns(UserWarning, match="600 of 800 classes have a single row") as caught:
        module.setup("fit")
    assert len(caught) == 1
    assert len(module.labels) == 800
    assert int(module.class_counts().min()) == 1
    held_out = rows_of(module.val_dataloader())
    assert len(held_out) == 120  # .3 of the 400 rows that can be spared
    assert min(held_out) >= 600
    assert sorted([*held_out, *module.learning.train.tolist()]) == list(range(1000))


def test_each_class_gives_its_share(tmp_path: Path) -> None:
    labels = [0] * 50 + [1] * 20 + [2] * 5 + [3] * 5
    module = fitted(ParquetRows(table(tmp_path / "a", labels), label="y", held_out=0.2))
    held_out = Counter(labels[row] for row in rows_of(module.val_dataloader()))
    assert held_out == {0: 10, 1: 4, 2: 1, 3: 1}
    most = fitted(ParquetRows(table(tmp_path / "a", labels), label="y", held_out=0.99))
    assert most.class_counts().tolist() == [1, 1, 1, 1]
    none = fitted(ParquetRows(table(tmp_path / "a", labels), label="y", held_out=0))
    assert none.val_dataloader() == []
    assert len(none.learning.train) == len(labels)


def test_the_seed_decides_what_is_held_out_in_a_mixed_order(tmp_path: Path) -> None:
    file = table(tmp_path / "a", [row // 100 for row in range(400)])
    module, again, other = (
        fitted(ParquetRows(file, label="y", held_out=0.5, seed=seed, batch_size=64))
        for seed in (3, 3, 4)
    )
    held_out = rows_of(module.val_dataloader())
    assert held_out == rows_of(module.val_dataloader()) == rows_of(again.val_dataloader())
    assert set(held_out) != set(rows_of(other.val_dataloader()))
    assert {row // 100 for row in held_out[:64]} == {0, 1, 2, 3}


@pytest.mark.parametrize("kind", ["images", "rows", "tokens"])
def test_batches_are_full_and_come_again(tmp_path: Path, kind: str) -> None:
    module: RowsModule
    if kind == "images":
        root = draw(tmp_path, {"a": range(0, 70, 10), "b": range(100, 170, 10)})
        module = ImageFolders(str(root), side=2, held_out=0, batch_size=4)
    elif kind == "rows":
        module = ParquetRows(table(tmp_path / "a", [0, 1] * 7), label="y", held_out=0, batch_size=4)
    else:
        (tmp_path / "a").write_text("a b c d e f g h\n" * 2)
        module = TokenSequences(str(tmp_path / "a"), length=3, held_out=0, batch_size=4)
    module = fitted(pickle.loads(pickle.dumps(module)))
    first, second, again = (epoch(module, number) for number in (0, 1, 0))
    assert [len(ids) for _, ids in first] == [4] * 4  # 14 rows, and two of them again
    for (inputs, ids), (same_inputs, same_ids) in zip(first, again, strict=True):
        assert torch.equal(inputs, same_inputs)
        assert torch.equal(ids, same_ids)
    assert not torch.equal(collect(first)[0], collect(second)[0])
    seen = Counter(str(row) for row in collect(first)[0].tolist())
    rows = Counter(str(row) for row in module.learning.rows[torch.arange(14)][0].tolist())
    assert set(seen) == set(rows)
    state = torch.get_rng_state()
    list(module.train_dataloader())
    assert torch.equal(state, torch.get_rng_state())


def test_worker_processes_read_the_same_batches(tmp_path: Path) -> None:
    root = draw(tmp_path, {"a": range(20), "b": range(100, 120)})
    alone, helped = (
        fitted(ImageFolders(str(root), side=2, batch_size=8, num_workers=n)) for n in (0, 2)
    )
    loader = helped.train_dataloader()
    assert isinstance(loader.sampler, EpochBatches)
    for number in (0, 1):
        loader.sampler.set_epoch(number)
        for one, other in zip(epoch(alone, number), loader, strict=True):
            assert torch.equal(one[0], other[0])
            assert torch.equal(one[1], other[1])
    watched = helped.val_dataloader()
    next(iter(watched))  # a pass that is not finished
    assert torch.equal(collect(helped.val_dataloader())[0], collect(alone.val_dataloader())[0])
    for name in ("a/003.png", "b/000.png"):  # an epoch has every row that is not held out
        (root / name).write_bytes(b"no image")
    with pytest.raises(ArgumentError, match=r"(a/003|b/000)\.png must be an image"):
        list(loader)


def test_settings_that_break_a_rule_are_refused_when_made() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"held_out": 1.0}, "held_out must lie in .0, 1., got 1.0"),
        ({"held_out": "0.1"}, "held_out must be a number, got '0.1'"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"side": 0}, "side must be at least 1"),
        ({"side": (3, 4, 5)}, "side must be one number or"),
        ({"channels": "cmyk"}, "channels must be one of rgb, grey"),
    ]
    for options, error in cases:
        with pytest.raises(ArgumentError, match=error):
            ImageFolders("root", **options)
    for module in (ImageFolders("root"), ParquetRows("a", label="y"), TokenSequences("a")):
        with pytest.raises(AttributeError, match="labels are there after setup"):
            _ = module.labels
        with pytest.raises(ArgumentError, match="rows to train on are there after setup"):
            module.train_dataloader()
        with pytest.raises(ArgumentError, match=r'rows to test are there after setup\("test"\)'):
            module.test_dataloader()


@pytest.mark.parametrize("package", ["PIL", "pyarrow"])
def test_absent_packages_are_named_with_their_extra(
    tmp_path: Path, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [package, *(n for n in sys.modules if n.startswith(f"{package}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    (tmp_path / "a").touch()
    module = (
        ImageFolders(str(tmp_path))
        if package == "PIL"
        else ParquetRows(str(tmp_path / "a"), label="y")
    )
    with pytest.raises(MissingExtraError, match=r"labelmapping\[fit\]"):
        module.setup("fit")


# --- rows of parquet files


def test_columns_of_numbers_become_rows(tmp_path: Path) -> None:
    file = table(
        tmp_path / "a",
        ["p", "q"],
        n=pa.array([1, 2], pa.int8()),
        y2=pa.array([0.5, 0.25]),
        b=pa.array([True, False]),
    )
    module = fitted(ParquetRows(file, label="y", held_out=0))
    inputs, ids = collect(epoch(module, 0))
    order = ids.argsort()
    assert inputs.dtype == torch.float32
    assert inputs[order].tolist() == [[1, 0.5, 1], [2, 0.25, 0]]
    some = fitted(ParquetRows(file, label="y", features=["y2", "n"], held_out=0))
    assert collect(epoch(some, 0))[0][:, 1].sort().values.tolist() == [1, 2]


def test_the_index_of_pandas_is_no_feature(tmp_path: Path) -> None:
    frame = pd.DataFrame({"y": ["a", "b"], "x": [1.0, 2.0]}, index=[7, 9])
    for name, made in (("a", frame), ("b", frame.rename_axis("key"))):
        made.to_parquet(tmp_path / name)
        module = fitted(ParquetRows(str(tmp_path / name), label="y", held_out=0))
        assert sorted(collect(epoch(module, 0))[0].tolist()) == [[1], [2]]


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.list_(pa.float64(), 2)])
def test_a_column_of_lists_is_a_matrix(tmp_path: Path, kind: pa.DataType) -> None:
    vectors = [[float(i), float(-i)] for i in range(5)]
    file = table(tmp_path / "a", list("vwxyz"), v=pa.array(vectors, kind))
    for features in (None, "v", ["v"]):
        module = fitted(ParquetRows(file, label="y", features=features, held_out=0))
        inputs, ids = collect(epoch(module, 0))
        assert inputs[ids.argsort()].tolist() == vectors
    uneven = table(tmp_path / "b", ["a", "b"], v=pa.array([[1.0], [1.0, 2.0]]))
    with pytest.raises(ArgumentError, match=r"one length, 'v' of .*b has 2 values in row 1 and 1"):
        ParquetRows(uneven, label="y").setup("fit")
    beside = table(tmp_path / "c", ["a", "b"], v=pa.array(vectors[:2], kind), x=[1, 2])
    with pytest.raises(ArgumentError, match="has lists in 'v' beside others"):
        ParquetRows(beside, label="y").setup("fit")
    hole = table(tmp_path / "d", ["a", "b"], v=pa.array([[1.0, 2.0], [1.0, None]], kind))
    with pytest.raises(ArgumentError, match=r"'v' of .* has a null in row 1"):
        ParquetRows(hole, label="y").setup("fit")


def test_several_files_are_one_table_by_the_names_of_columns(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    table(tmp_path / "deep" / "2.parquet", ["c", "a"], z=[5, 6], x=[7, 8])
    table(tmp_path / "1.parquet", pa.array(["b", "a"]).dictionary_encode(), x=[1, 2], z=[3, 4])
    files = [str(tmp_path / "1.parquet"), str(tmp_path / "**" / "*.parquet")]
    module = ParquetRows(files, label="y", held_out=0, predict_files=files[1:], test_files=files[1])
    assert fitted(module).labels == ["a", "b", "c"]
    inputs, ids = collect(epoch(module, 0))
    found = sorted([i, *row] for i, row in zip(ids.tolist(), inputs.tolist(), strict=True))
    assert found == [[0, 2, 4], [0, 8, 6], [1, 1, 3], [2, 7, 5]]
    predicted = torch.cat(list(answers(module, "predict"))).tolist()
    assert predicted == [[1, 3], [2, 4], [7, 5], [8, 6]]
    assert collect(answers(module, "test"))[1].tolist() == [1, 0, 2, 0]


def test_labels_of_integers_come_in_numeric_order(tmp_path: Path) -> None:
    labels = [10**12, 9, -3, 10, 9, 2**63 - 1]
    module = fitted(ParquetRows(table(tmp_path / "a", labels), label="y", held_out=0))
    assert module.labels == ["-3", "9", "10", "1000000000000", str(2**63 - 1)]
    assert module.learning.ids.tolist() == [3, 1, 0, 2, 1, 4]


def test_N45_labels_never_trained_on_have_no_id(tmp_path: Path) -> None:
    train = table(tmp_path / "a", ["x", "y", "x", "y"])
    test = table(tmp_path / "b", ["y", "new", "x", "newer", "new"])
    module = ParquetRows(train, label="y", held_out=0.5, test_files=test)
    with pytest.warns(UserWarning, match=r"3 rows .*count as errors: 'new', 'newer'"):
        loader = answers(module, "test")
    assert collect(loader)[1].tolist() == [1, -1, 0, -1, -1]
    assert module.labels == ["x", "y"]
    numbers = ParquetRows(train, label="y", test_files=table(tmp_path / "c", [1, 2]))
    with pytest.raises(ArgumentTypeError, match="has str in files and int in test_files"):
        numbers.setup("test")


def test_N46_labels_are_kept_as_they_are_with_one_warning(tmp_path: Path) -> None:
    labels = ["sku1", "sku1\n", " sku1", "\u00e9", "e\u0301"]
    module = ParquetRows(table(tmp_path / "a", labels * 2), label="y", held_out=0)
    with pytest.warns(LookalikeLabelsWarning, match="3 labels equal others") as caught:
        module.setup("fit")
    assert len(caught) == 1
    assert module.labels == sorted(labels)


def test_N70_characters_come_back(tmp_path: Path) -> None:
    characters = ["甲", "乙", "丙", "𠀀"]
    images = ImageFolders(str(draw(tmp_path / "images", {c: [1, 2] for c in characters})))
    rows = ParquetRows(table(tmp_path / "rows", characters * 2), label="y")
    (tmp_path / "text").write_text("甲 甲 甲 甲 乙 乙 乙 丙 丙 𠀀\n", encoding="utf-8-sig")
    tokens = TokenSequences(str(tmp_path / "text"))
    assert fitted(images).labels == fitted(rows).labels == sorted(characters)
    assert fitted(tokens).labels == characters


def test_rows_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    good = table(tmp_path / "good", ["a", "b"])
    (tmp_path / "text").write_text("no parquet")
    n, v = [1.0, 2.0, 3.0], ["a", "b", "a"]
    far = np.zeros(70_000)
    far[-1] = np.nan
    cases: list[tuple[list[Any], dict[str, Any], str]] = [
        (["a", None, "b"], {"x": n}, "'y' of .* is null in row 1"),
        ([0.5, 1.0, 2.0], {"x": n}, "strings or integers, 'y' of .* is double"),
        (v, {"x": n, "s": v, "t": v}, r"columns of numbers, .* has 's' \(string\), 't'"),
        (v, {"x": n, "z": [1.0, None, 2.0]}, "'z' of .* has a null in row 1"),
        (v, {"x": n, "z": [1.0, 2.0, float("inf")]}, "finite.*, 'z' of .* is not in row 2"),
        (v, {"x": [1.0, 1e300, 2.0]}, "finite as float32, 'x' of .* is not in row 1"),
        (v * 30_000, {"x": [*far, *([0.0] * 20_000)]}, "'x' of .* is not in row 69999"),
    ]
    for number, (labels, columns, error) in enumerate(cases):
        file = table(tmp_path / str(number), labels, **columns)
        with pytest.raises(ArgumentError, match=error):
            ParquetRows(file, label="y").setup("fit")
    for files, label, features, error in [
        (good, "w", None, "must have one column 'w', it has 0; its columns are 'y', 'x'"),
        (good, "y", ["w"], "must have one column 'w'"),
        (str(tmp_path / "text"), "y", None, "text must be a parquet file"),
        (str(tmp_path), "y", None, "files must be files, and .* is a folder"),
        ([], "y", None, "files must name at least one file"),
        ([good, table(tmp_path / "ints", [1, 2])], "y", None, "has str in .*good and int in"),
        (table(tmp_path / "none", pa.array([], pa.string())), "y", None, "must have rows"),
    ]:
        with pytest.raises(ArgumentError, match=error):
            ParquetRows(files, label=label, features=features).setup("fit")
    with pytest.raises(DataNotFoundError, match=r"no file is called or matches .*\*\.parquet"):
        ParquetRows(str(tmp_path / "*.parquet"), label="y").setup("fit")
    with pytest.raises(ArgumentError, match="features must be columns other than the label"):
        ParquetRows(good, label="y", features=["x", "y"])
    one = table(tmp_path / "one", ["a"])
    with pytest.raises(ArgumentError, match="at least 2 rows to train on, got 1"):
        ParquetRows(one, label="y", held_out=0).setup("fit")


def test_fingerprints_of_rows_cover_their_contents(tmp_path: Path) -> None:
    def made(name: str, labels: Sequence[Any], x: Sequence[float], **options: Any) -> str:
        file = table(tmp_path / name, labels, x=x)
        return fitted(ParquetRows(file, label="y", **options)).fingerprint()

    labels, x = ["a", "b", "a", "b"], [1.0, 2.0, 3.0, 4.0]
    first = made("one", labels, x)
    assert first == made("two", labels, x, num_workers=0, predict_files="elsewhere")
    changed = [
        made("one", labels, [1.0, 2.0, 3.0, 5.0]),
        made("one", ["a", "b", "b", "a"], x),
        made("one", ["a", "c", "a", "c"], x),
        made("one", labels, x, seed=1),
        made("one", labels, x, held_out=0.5),
    ]
    assert len({first, *changed}) == 6


# --- sequences of tokens


def text(path: Path, content: str) -> str:
    path.write_bytes(content.encode())
    return str(path)


def named(module: TokenSequences, loader: Any) -> list[tuple[str, str]]:
    """Histories and what followed, as tokens; unknown ones are ?, padding is left out."""
    names = [*module.labels, "?"]
    inputs, ids = collect(loader)
    return [
        (" ".join(names[i] for i in row if i >= 0), names[int(t)])
        for row, t in zip(inputs.tolist(), ids, strict=True)
    ]


def test_every_token_but_a_lines_first_is_a_row(tmp_path: Path) -> None:
    file = text(tmp_path / "a", "b a a\r\n\n c\tb a a \nd d\nc a\n")
    module = fitted(TokenSequences(file, length=2, held_out=0.25))
    assert module.labels == ["a", "b", "d", "c"]  # by count in the first three lines
    assert sorted(named(module, epoch(module, 0))) == [
        ("b", "a"),
        ("b a", "a"),
        ("b a", "a"),
        ("c", "b"),
        ("c b", "a"),
        ("d", "d"),
    ]
    assert named(module, module.val_dataloader()) == [("c", "a")]
    assert module.class_counts().tolist() == [4, 1, 1, 0]
    inputs, _ = collect(module.val_dataloader())
    assert inputs.dtype == torch.int64
    assert inputs.tolist() == [[-1, 3]]


def test_the_last_tokens_of_a_log_are_left_out_as_in_the_logs_of_the_papers(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    lines = [[u, *random.integers(1, 12, random.integers(4, 15))] for u in range(1, 30)]
    file = text(tmp_path / "log.txt", "\n".join(" ".join(map(str, line)) for line in lines))
    log = read_sequences(file)
    module = fitted(TokenSequences(file, length=5, id_first=True, split="tokens"))
    items = np.array([int(label) - 1 for label in module.labels] + [-1])
    for part, loader in [
        ("train", epoch(module, 0)),
        ("validation", module.val_dataloader()),
        ("test", answers(module, "test")),
    ]:
        histories, targets = log.windows(part, 5)
        inputs, ids = collect(loader)
        found = [[*row, t] for row, t in zip(items[inputs].tolist(), items[ids], strict=True)]
        expected = [[*row, t] for row, t in zip(histories.tolist(), targets, strict=True)]
        if part == "test":
            assert found == expected
        assert {tuple(row) for row in found} == {tuple(row) for row in expected}
    short = text(tmp_path / "short", "a b\na b c\na b c d\n")
    module = fitted(TokenSequences(short, split="tokens"))
    assert named(module, module.val_dataloader()) == [("a b", "c")]
    assert module.class_counts().tolist() == [0, 3, 1]


def test_unknown_tokens_are_left_out_or_share_a_class(tmp_path: Path) -> None:
    file = text(tmp_path / "a", "a b rare a b\na b a b\nodd b\n")
    test = text(tmp_path / "b", "a new b newer b\n")
    module = TokenSequences(file, min_count=2, held_out=0, test_files=test)
    assert fitted(module).labels == ["b", "a"]
    assert sorted(set(named(module, epoch(module, 0)))) == [
        ("a", "b"),
        ("a b", "a"),
        ("a b a", "b"),
    ]
    with pytest.warns(UserWarning, match=r"2 rows of the test have labels .*'new', 'newer'"):
        loader = answers(module, "test")
    assert named(module, loader) == [("a", "?"), ("a", "b"), ("a b", "?"), ("a b", "b")]
    module = TokenSequences(file, min_count=2, unknown="<unk>", held_out=0, test_files=test)
    assert fitted(module).labels == ["b", "a", "<unk>"]
    assert ("a b", "<unk>") in named(module, epoch(module, 0))
    assert ("<unk>", "b") in named(module, epoch(module, 0))
    assert named(module, answers(module, "test"))[1] == ("a <unk>", "b")
    full = fitted(TokenSequences(file, unknown="<unk>", held_out=0))
    assert full.labels[-1] == "<unk>"
    assert full.class_counts()[-1] == 0


def test_predictions_are_a_row_a_line(tmp_path: Path) -> None:
    file = text(tmp_path / "a", "u1 a b c\nu2 a b a\n")
    ask = text(tmp_path / "b", "v1 a b c\n\nv2\nv3 new c\n")
    options: dict[str, Any] = {"length": 2, "id_first": True, "predict_files": ask}
    module = fitted(TokenSequences(file, batch_size=3, **options))
    number = {label: i for i, label in enumerate(module.labels)}
    batches = list(answers(module, "predict"))
    assert [len(batch) for batch in batches] == [3, 1]
    assert torch.cat(batches).tolist() == [
        [number["b"], number["c"]],
        [-1, -1],
        [-1, -1],
        [-1, number["c"]],
    ]
    full = TokenSequences(file, full_windows=True, **options)
    with pytest.raises(ArgumentError, match=r"2 known tokens in each line, .*b, line 2 has 0"):
        full.setup("predict")


def test_trunks_take_the_histories(tmp_path: Path) -> None:
    file = text(tmp_path / "a", "a b c d e f g\n" * 3)
    module = fitted(TokenSequences(file, length=4, held_out=0.4))
    inputs = epoch(module, 0)[0][0]
    mapping = MixedMapping.one_hot(7)
    assert NextItemAttention(mapping, length=4)(inputs).shape == (12, 64)
    full = fitted(TokenSequences(file, length=4, held_out=0.4, full_windows=True))
    inputs = epoch(full, 0)[0][0]
    assert int(inputs.min()) == 0
    assert NextWordLstm(mapping)(inputs).shape == (6, 100)


def test_text_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.write_bytes(b"a b\nc \xff\n")
    with pytest.raises(ArgumentError, match=r"bad, line 2 must be UTF-8 text"):
        TokenSequences(str(bad)).setup("fit")
    with pytest.raises(ArgumentError, match="at least 2 rows to train on, got 0"):
        TokenSequences(text(tmp_path / "a", "a\nb\n\n"), held_out=0).setup("fit")
    with pytest.raises(ArgumentError, match="at least 2 rows to train on, got 0"):
        TokenSequences(text(tmp_path / "a", "")).setup("fit")
    with pytest.raises(ArgumentError, match="test_files must not be given with split='tokens'"):
        TokenSequences("a", split="tokens", test_files="b")
    with pytest.raises(ArgumentError, match="unknown must be one token"):
        TokenSequences("a", unknown="un known")


def test_fingerprints_of_tokens_cover_their_contents(tmp_path: Path) -> None:
    def made(content: str, **options: Any) -> str:
        return fitted(TokenSequences(text(tmp_path / "a", content), **options)).fingerprint()

    first = made("a b c a b\n a b\n")
    assert first == made("\na  b c a b\r\na b")
    others = [
        made("a b c a\n b a b\n"),
        made("a b d a b\n a b\n"),
        made("a b c a b\n a b\n", length=3),
        made("a b c a b\n a b\n", unknown="?"),
    ]
    assert len({first, *others}) == 5


def test_loaders_are_torchs(tmp_path: Path) -> None:
    module = fitted(TokenSequences(text(tmp_path / "a", "a b c\n" * 20)))
    for loader in (module.train_dataloader(), module.val_dataloader()):
        assert isinstance(loader, DataLoader)
