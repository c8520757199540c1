"""The command: bad input ends in one sentence, exit code 2, and nothing half-written."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import labelmapping
from labelmapping import EcocMapping, LabelMapping, MixedMapping, SimplexMapping, cli
from labelmapping.cli import main
from labelmapping.datasets.fonts import installed_faces
from labelmapping.learners import LearnerRecipe
from labelmapping.mappings.properties import properties


@pytest.fixture(autouse=True)
def untouched_logging() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("labelmapping")
    before = root.handlers[:], root.level, ours.level
    yield
    root.handlers[:], root.level, ours.level = before


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What the command says, having ended with 2 and nothing on standard output."""
    try:
        code = main(arguments)
    except SystemExit as error:  # argparse's own way out
        code = int(error.code or 0)
    said = capsys.readouterr()
    assert code == 2
    assert said.out == ""
    assert "Traceback" not in said.err
    return said.err.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("reproduce republic --data-dir nowhere", "nowhere holds neither"),
        (
            "reproduce republic --data-dir DATA --profile fast",
            "one of quick, cpu, paper; got 'fast'",
        ),
        ("reproduce republic --data-dir DATA --rows ecoc", "one-hot, negative-sampling, cut-off"),
        ("reproduce republic --data-dir DATA --epochs 0", "epochs must be at least 1, got 0"),
        ("reproduce republic --data-dir DATA --seeds 0 -1", "seeds[1] must be at least 0, got -1"),
        ("reproduce cifar100 --data-dir nowhere", "nowhere holds none"),
        ("reproduce cjk --rows cut-off", "got 'cut-off'"),
        ("reproduce republic --data-dir WRONG", "found 5 words, 4 distinct"),
        ("demo --steps 0", "steps must be at least 1, got 0"),
        ("demo --steps many", "invalid int value: 'many'"),
        ("demo --class-set big5", "got 'big5'"),
        ("demo --side 7", "side must be"),
        ("demo --sites 1", "n_sites must be at least 2, got 1"),
        ("demo --alphabets 3 5 7 11", "n_classes must be at most 1155 (3 x 5 x 7 x 11)"),
        ("demo --alphabets 62 64 67 71", "62 and 64 share the factor 2"),
        ("demo --field-order 61", "n_classes must be at most 3721 (61^2)"),
        ("demo --field-order 180", "180 = 2^2 x 3^2 x 5^1"),
        ("demo --learning-rate 0", "learning_rate must be positive and finite in float32, got 0.0"),
        ("demo --seed -1", "seed must be at least 0, got -1"),
        ("demo --learning-rate inf", "finite in float32, got inf"),
        ("demo --batch-size 1", "batch_size must be at least 2, got 1"),
        ("demo --faces nothing other", "nothing"),
        ("design", "the following arguments are required: --classes"),
        ("design --classes 1", "n_classes must be at least 2, got 1"),
        ("design --classes 1e8", "invalid int value: '1e8'"),
        ("design --classes 100 --sites 2 --distance 3", "distance of 2 sites must be at most 2"),
        (
            "design --classes 100 --sites 2 --lost-sites 2",
            "lost_sites of 2 sites must be",
        ),
        ("design --classes 9999 --sites 4 --distance 3 --max-alphabet 50 --json", "or 5 sites"),
        ("design --classes 9999 --max-parameters 99 --in-features 9", "must be at least 350"),
        ("design --classes 9999 --family hashed", "one of mixed, simplex, one-hot; got 'hashed'"),
        ("design --classes 9999 --hidden 8 0", "hidden[1] must be at least 1, got 0"),
        ("inspect", "the following arguments are required: recipe"),
        ("inspect nowhere.json", "nowhere.json is no file; it must be the JSON of"),
        ("inspect WRONG", "is no file; it must be the JSON of"),
        ("inspect WRONG/republic.txt --json", "republic.txt must be JSON: Expecting value"),
        ("reproduce", "the following arguments are required: EXPERIMENT"),
        ("reproduce imagenet", "invalid choice: 'imagenet'"),
        ("", "the following arguments are required: COMMAND"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(
    arguments: str,
    sentence: str,
    data_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    wrong = tmp_path / "wrong"
    wrong.mkdir()
    (wrong / "republic.txt").write_text("BOOK I.\nI went down")
    place = tmp_path / "place"
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.setenv("LABELMAPPING_CACHE", str(tmp_path / "cache"))
    names = {"DATA": str(data_dir.resolve()), "WRONG": str(wrong)}
    words = [word.partition("/") for word in arguments.split()]
    said = refusal(capsys, *(names.get(head, head) + slash + tail for head, slash, tail in words))
    assert sentence in said
    assert not list(place.iterdir())
    assert not (tmp_path / "cache").exists()


def test_a_run_folder_of_something_else_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if len(installed_faces()) < 2:
        pytest.skip("fewer than two known CJK faces are installed (scripts/install_fonts.sh)")
    (tmp_path / "one-hot").mkdir()
    (tmp_path / "one-hot" / "thesis.txt").write_text("mine")
    said = refusal(capsys, "demo", "--steps", "2", "--run-dir", str(tmp_path))
    assert "is no run folder" in said
    assert [p.name for p in tmp_path.rglob("*")] == ["one-hot", "thesis.txt"]
    (tmp_path / "file").write_text("")
    said = refusal(capsys, "demo", "--steps", "2", "--run-dir", str(tmp_path / "file"))
    assert "file" in said


def test_interrupted_is_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_demo", interrupted)
    assert main(["demo"]) == 130
    assert "start again to go on" in capsys.readouterr().err


def test_without_the_extra_the_command_names_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert "pip install 'labelmapping[experiments]'" in refusal(capsys, "demo")
    said = refusal(capsys, "design", "--classes", "100")
    assert "pip install 'labelmapping[train]', or ask for --json" in said


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["demo", "--help"],
        ["reproduce", "-h"],
        ["reproduce", "republic", "-h"],
        ["design", "-h"],
        ["inspect", "-h"],
    ],
)
def test_help_and_version(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(arguments)
    assert "usage: labelmapping" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert labelmapping.__version__ in capsys.readouterr().out


def test_help_comes_without_torch() -> None:
    code = (
        "import sys; from labelmapping.cli import main\n"
        "try: main(['demo', '--help'])\n"
        "except SystemExit: assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_python_dash_m() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "labelmapping", "--version"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout == f"labelmapping {labelmapping.__version__}\n"


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What the command shows on standard output, having ended with 0."""
    assert main(arguments) == 0
    said = capsys.readouterr()
    assert said.err.strip() == ""
    return said.out


def json_output(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    return json.loads(output(capsys, *arguments, "--json"))


def cells(line: str) -> list[str]:
    return [cell for cell in line.split("  ") if cell.strip()]


def test_design_shows_the_choices_and_a_recipe_to_paste(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = output(capsys, "design", "--classes", "20901", "--sites", "4").splitlines()
    assert lines[0] == (
        "20,901 classes from 512 features: one-hot has 10.7 M parameters (42.9 MB); 300 kbit to "
        "hold. Any k of n sites tell the class."
    )
    rows = [[cell.strip() for cell in cells(line)] for line in lines if line[:1].isdigit()]
    assert rows[1] == ["1 simplex", "149 x 4", "2 of 4", "3", "1", "2", "22,201", "306 k", "1/35"]
    assert rows[2][:3] == ["2 mixed", "149 151 157 163", "2 of 4"]
    assert rows[8][1:] == ["20903 ... 20939", "1 of 4", "4", "1", "3", "20,903", "42.9 M", "4 x"]
    assert "5, 6: distance 1: no error is corrected and no learner may be lost" in lines
    assert "7, 8: the code saves nothing: the head has 4 times one-hot's size" in lines
    recipe = json.loads(lines[-1])
    assert LabelMapping.from_config(recipe) == SimplexMapping(20_901, 4, field_order=149)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (999.4, "999 B"), (999.6, "1 kB"), (305_748, "306 kB"), (2**70, "1.18 ZB")],
)
def test_figures_are_short(value: float, text: str) -> None:
    assert cli._short(value, "B") == text


def test_design_for_a_hundred_million_classes(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["design", "--classes", "100000000", "--sites", "6", "--hidden", "256"]
    shown = output(capsys, *arguments, "--top", "3", "--trunk-parameters", "5000000")
    assert "51.3 G parameters (205 GB); 2.66 Gbit to hold" in shown
    assert "1 simplex" in shown
    assert "4 mixed" not in shown
    assert "all: trunk and hidden layers hold about 10,263,168 bits" in shown
    assert json.loads(shown.splitlines()[-1])["field_order"] == 10_007


def test_design_as_json_has_the_request_and_every_recipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    arguments = "--classes 10000 --lost-sites 1 --max-alphabet 200 --max-parameters 50000"
    arguments += " --in-features 64 --hidden 32 16 --family simplex mixed --top 5"
    document = json_output(capsys, "design", *arguments.split())
    assert document["request"] == {
        "n_classes": 10_000,
        "sites": None,
        "distance": None,
        "lost_sites": 1,
        "max_alphabet": 200,
        "max_parameters": 50_000,
        "in_features": 64,
        "hidden": [32, 16],
        "family": ["simplex", "mixed"],
        "trunk_parameters": None,
        "top": 5,
    }
    assert len(document["choices"]) == 5
    for choice in document["choices"]:
        mapping = LabelMapping.from_config(choice["recipe"])
        assert list(mapping.alphabet_sizes) == choice["alphabet_sizes"]
        assert mapping.min_distance == choice["min_distance"] >= 2
        assert choice["head_parameters"] <= 50_000


def test_design_and_inspect_come_without_torch_and_rich(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.json"
    recipe.write_text(json.dumps(MixedMapping(1000, [31, 37, 41]).to_config()))
    code = (
        "import sys; from labelmapping.cli import main\n"
        "assert main(['design', '--classes', '16200', '--sites', '4', '--json']) == 0\n"
        f"assert main(['inspect', {str(recipe)!r}, '--json']) == 0\n"
        "assert not {'torch', 'rich', 'galois'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


MAPPING = MixedMapping(1000, [31, 37, 41, 43])
LEARNER = LearnerRecipe(mapping=MAPPING, trunk="labelmapping.nn:SmallCnn", epochs=1)
# As they come: alone, in what `design` prints, in a learner's recipe, in a run.json.
DOCUMENTS = [
    MAPPING.to_config(),
    {"recipe": MAPPING.to_config()},
    LEARNER.to_config(),
    {"format": 1, "recipe": LEARNER.to_config(), "seed": 0, "sites": {}},
]


@pytest.mark.parametrize("document", DOCUMENTS, ids=["mapping", "choice", "learner", "run"])
def test_inspect_reads_a_recipe_wherever_it_lies(
    document: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "recipe.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    found = json_output(capsys, "inspect", str(path))
    assert LabelMapping.from_config(found["recipe"]) == MAPPING
    assert found["capacity"] == 1147
    assert found["properties"] == json.loads(json.dumps(properties(MAPPING).to_dict()))
    assert found["properties"]["min_distance"] == 3


def test_inspect_shows_what_is_known_and_how(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "recipe.json"
    path.write_text(json.dumps(MAPPING.to_config()))
    shown = output(capsys, "inspect", str(path))
    lines = {tuple(cell.strip() for cell in cells(line)) for line in shown.splitlines()}
    assert ("mixed code of 1,000 classes",) in lines
    for line in [
        ("alphabets", "31 37 41 43"),
        ("class from", "any 2 of 4 sites"),
        ("room for", "1,147 (147 free)"),
        ("distance", "3", "structure"),
        ("below the best possible", "0", "structure"),
        ("wrong sites corrected", "1", "structure"),
        ("sites that may be lost", "2", "structure"),
        ("pairs with one codeword", "0", "structure"),
        ("pairs that differ at 3", "10.31 %", "structure"),
        ("classes of a symbol", "23 to 33", "structure"),
        ("bits a site", "4.954 to 5.426", "structure"),
    ]:
        assert line in lines


def test_inspect_tells_how_natural_a_code_is_for_prototypes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, path = tmp_path / "recipe.json", tmp_path / "prototypes.npy"
    recipe.write_text(json.dumps(MixedMapping(6, [2, 3]).to_config()))
    np.save(path, (np.arange(6) % 2 * np.float32(7.0))[:, None])  # the first site's symbols
    found = json_output(capsys, "inspect", str(recipe), "--prototypes", str(path))
    assert found["properties"]["naturalness"] == pytest.approx([1.0, 0.0], abs=1e-12)
    shown = output(capsys, "inspect", str(recipe), "--prototypes", str(path))
    assert any("variance between symbols" in x and "0 to 1" in x for x in shown.splitlines())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "is no file; it must be an array as numpy.save writes it"),
        (b"text", "must be an array of numbers (.npy)"),
        (b"", "must be an array of numbers (.npy)"),
        (np.array([{"an": "object"}]), "must be an array of numbers (.npy): Object arrays"),
        (np.zeros((5, 2)), "prototypes must have a row for each of 1000 classes, got 5"),
    ],
)
def test_inspect_refuses_what_is_no_array_of_prototypes(
    content: object, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, path = tmp_path / "recipe.json", tmp_path / "prototypes.npy"
    recipe.write_text(json.dumps(MAPPING.to_config()))
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        np.save(path, np.asarray(content), allow_pickle=True)
    assert cli.main(["inspect", str(recipe), "--prototypes", str(path), "--json"]) == 2
    assert words in capsys.readouterr().err


def test_inspect_names_the_arrays_of_an_archive(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, path = tmp_path / "recipe.json", tmp_path / "prototypes.npz"
    recipe.write_text(json.dumps(MAPPING.to_config()))
    np.savez(path, first=np.zeros(3))
    assert cli.main(["inspect", str(recipe), "--prototypes", str(path), "--json"]) == 2
    assert "must hold one array (.npy), got first" in capsys.readouterr().err


def test_the_table_of_properties_says_what_is_not_known() -> None:
    found = properties(MAPPING)
    shares = (0.5, *(0.5 / 12 for _ in range(12)))
    found = replace(found, collisions=2, collision=(3, 7), distance_shares=shares)
    lines = {line[0]: line[1] for line in cli._properties_table(MAPPING, found)[1]}
    assert lines["pairs with one codeword"] == "2: classes 3 and 7"
    assert lines["pairs that differ at 0"] == "50 %"
    assert lines["pairs that differ at 8 or more"] == "20.83 %"
    found = replace(
        found,
        collisions=None,
        collision=None,
        symbol_counts=None,
        entropy=None,
        mutual_information=None,
        mean_distance=None,
    )
    lines = {line[0]: line[1] for line in cli._properties_table(MAPPING, found)[1]}
    assert lines["pairs with one codeword"] == "not known"
    unknown = {"classes of a symbol", "bits a site", "bits two sites share, at most"}
    assert not {*unknown, "mean distance"} & set(lines)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"\x80\x04\x95.", "must be JSON: 'utf-8' codec can't decode"),
        (b"{'format': 1}", "must be JSON: Expecting property name"),
        (b"", "must be JSON: Expecting value"),
        (b"[" * 100_000, "must be JSON: maximum recursion depth exceeded"),
        (b"[1, 2]", "must hold the recipe of a mapping, as mapping.to_config() gives it"),
        (b"{}", "must hold the recipe of a mapping"),
        (b'{"recipe": {"mapping": 3}}', "must hold the recipe of a mapping"),
        (b'{"kind": "mixed"}', "format of the recipe must be an integer, got None"),
        (b'{"format": 99, "kind": "mixed"}', "format of the recipe must be at most 1, got 99"),
        (b'{"format": 1, "kind": "magic"}', "kind of the recipe must be one of"),
        (b'{"format": 1, "kind": "mixed", "n_classes": 9}', "recipe of a mixed mapping: n_sites"),
        (
            b'{"format": 1, "kind": "mixed", "n_classes": 9, "alphabet_sizes": [4, 6], '
            b'"dimension": 2}',
            "4 and 6 share the factor 2",
        ),
    ],
)
def test_inspect_refuses_what_is_no_recipe_and_names_the_file(
    content: bytes, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "recipe.json"
    path.write_bytes(content)
    said = refusal(capsys, "inspect", str(path))
    assert sentence in said
    assert str(path) in said


def test_codes_with_too_many_sites_for_a_matrix_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "recipe.json"
    path.write_text(json.dumps(EcocMapping(40, "one-versus-one").to_config()))
    shown = output(capsys, "inspect", str(path))
    lines = {tuple(cell.strip() for cell in cells(line)) for line in shown.splitlines()}
    assert ("bits a site", "0.3364 to 0.3364", "counting") in lines
    assert not any(line[0].startswith("bits two sites share") for line in lines)
