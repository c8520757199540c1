"""Class sets, drawing and caching of CJK characters, with fonts built here and real ones."""

import logging
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from labelmapping.datasets import cjk, fonts
from labelmapping.datasets.cjk import CLASS_SETS, characters, load_cjk, render_face
from labelmapping.datasets.fonts import Face, installed_faces
from labelmapping.errors import ArgumentError, DataNotFoundError, MissingExtraError

TINY = "一丁七万丈"
BuildFont = Callable[..., str]


@pytest.fixture
def build_font(tmp_path: Path) -> BuildFont:
    """Builds a font whose n-th character is a box n+1 tenths of the em wide."""
    pytest.importorskip("PIL", reason="Pillow draws the glyphs")
    builder_module = pytest.importorskip("fontTools.fontBuilder", reason="fontTools builds fonts")
    pen_module = pytest.importorskip("fontTools.pens.ttGlyphPen")

    def build(
        name: str,
        covered: str = TINY,
        *,
        blank: str = "",
        undefined: str = "",
        height: int = 600,
        baseline: int = 0,
    ) -> str:
        names = {ord(c): ".notdef" if c in undefined else f"glyph{ord(c):X}" for c in covered}
        glyphs = {".notdef": pen_module.TTGlyphPen(None).glyph()}
        for n, c in enumerate(covered):
            pen = pen_module.TTGlyphPen(None)
            if c not in blank:
                right, top = 100 + 100 * (n + 1), baseline + height
                pen.moveTo((100, baseline))
                for corner in ((100, top), (right, top), (right, baseline)):
                    pen.lineTo(corner)
                pen.closePath()
            if c not in undefined:
                glyphs[names[ord(c)]] = pen.glyph()
        builder = builder_module.FontBuilder(1000, isTTF=True)
        builder.setupGlyphOrder(list(glyphs))
        builder.setupCharacterMap(names)
        builder.setupGlyf(glyphs)
        builder.setupHorizontalMetrics(dict.fromkeys(glyphs, (1000, 0)))
        builder.setupHorizontalHeader(ascent=880, descent=-120)
        builder.setupNameTable({"familyName": name, "styleName": "Regular"})
        builder.setupOS2()
        builder.setupPost()
        path = tmp_path / f"{name}.ttf"
        builder.save(path)
        return str(path)

    return build


@pytest.fixture
def tiny_faces(build_font: BuildFont, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Three faces that cover the class set "tiny"."""
    monkeypatch.setitem(CLASS_SETS, "tiny", TINY)
    return [build_font("low", height=300), build_font("mid"), build_font("high", height=800)]


def face_of(path: str) -> Face:
    return Face(Path(path).stem, Path(path), 0)


def ink_box(image: npt.NDArray[np.uint8]) -> tuple[int, int, int, int]:
    rows, columns = np.flatnonzero(image.any(axis=1)), np.flatnonzero(image.any(axis=0))
    return int(rows[0]), int(rows[-1]), int(columns[0]), int(columns[-1])


def refuse_to_draw(*args: Any, **keywords: Any) -> Any:
    raise AssertionError("drawn although it is cached")


@pytest.mark.parametrize(
    ("name", "size", "first", "last"),
    [
        ("gb2312-1", 3_755, "啊", "座"),
        ("uro", 20_902, "\u4e00", "\u9fa5"),
        ("uro-paper", 20_901, "\u4e00", "\u9fa4"),
    ],
)
def test_class_sets(name: str, size: int, first: str, last: str) -> None:
    members = characters(name)
    assert len(members) == len(set(members)) == size
    assert (members[0], members[-1]) == (first, last)
    assert set(members) <= set(characters("uro"))


def test_an_unknown_class_set_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"gb2312-1.*uro.*uro-paper.*got 'big5'"):
        characters("big5")
    with pytest.raises(ArgumentError, match="class_set"):
        load_cjk("big5")


@pytest.mark.parametrize("side", [8, 23, 48, 512])
def test_glyphs_are_white_centred_and_not_stretched(build_font: BuildFont, side: int) -> None:
    images = render_face(face_of(build_font("box", baseline=-150)), list(TINY), side)
    assert images.shape == (len(TINY), side, side)
    assert images.dtype == np.uint8
    assert images.max() == 255
    heights, widths = [], []
    for image in images:
        top, bottom, left, right = ink_box(image)
        assert abs(top - (side - 1 - bottom)) <= 1
        assert abs(left - (side - 1 - right)) <= 1
        heights.append(bottom - top + 1)
        widths.append(right - left + 1)
    # All extents are the height, 600 units, so that it fills 0.9 of the side; the
    # widths are 100..500 units in the same scale, but for the partly inked edges.
    assert np.allclose(heights, 0.9 * side, atol=2)
    assert np.allclose(widths, 0.9 * side * np.arange(1, 6) / 6, atol=2)


def test_the_place_in_the_em_box_does_not_show(build_font: BuildFont) -> None:
    one = render_face(face_of(build_font("one", height=400)), list(TINY), 24)
    moved = render_face(face_of(build_font("moved", height=400, baseline=333)), list(TINY), 24)
    # But for the grey levels along the edges: ink is placed to a quarter of a pixel.
    assert np.corrcoef(one.ravel(), moved.ravel())[0, 1] > 0.98


def test_an_image_does_not_depend_on_what_else_is_drawn(build_font: BuildFont) -> None:
    face = face_of(build_font("box", "".join(cjk.REFERENCE[:6]) + "丁"))
    both = render_face(face, ["丁", cjk.REFERENCE[3]], 24)
    assert np.array_equal(render_face(face, ["丁"], 24), both[:1])
    assert render_face(face, [], 24).shape == (0, 24, 24)


@pytest.mark.parametrize("side", [7, 513, 0, -24, 24.5, True])
def test_a_side_out_of_range_is_refused(side: Any) -> None:
    with pytest.raises(ArgumentError, match=r"side must be .* 8 to 512"):
        load_cjk(side=side)
    with pytest.raises(ArgumentError, match=r"side must be .* 8 to 512"):
        render_face(Face("none", Path("none.ttf"), 0), [], side)


def test_the_first_missing_character_is_the_witness(build_font: BuildFont) -> None:
    short = face_of(build_font("short", "一丁"))
    with pytest.raises(
        ArgumentError, match=r"short \(short.ttf\) has no glyph for '七' \(U\+4E03\).*missing: 3"
    ):
        render_face(short, list(TINY), 24)
    undefined = face_of(build_font("undefined", undefined="丁丈"))
    with pytest.raises(ArgumentError, match=r"no glyph for '丁' \(U\+4E01\).*missing: 2"):
        render_face(undefined, list(TINY), 24)
    blank = face_of(build_font("blank", blank="七"))
    with pytest.raises(ArgumentError, match=r"draws nothing for '七' \(U\+4E03\).*missing: 1"):
        render_face(blank, list(TINY), 24)
    with pytest.raises(ArgumentError, match=r"no glyph for '一丁' \(U\+4E00 U\+4E01\)"):
        render_face(short, ["一丁"], 24)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fontTools.ttLib", None)
    with pytest.raises(MissingExtraError, match=r"pip install labelmapping\[experiments\]"):
        render_face(Face("none", Path("none.ttf"), 0), ["一"], 24)


def test_rows_come_face_by_face_and_the_last_face_is_held_out(
    tiny_faces: list[str], tmp_path: Path
) -> None:
    data = load_cjk("tiny", faces=tiny_faces, cache_dir=tmp_path / "cache")
    assert (data.train_faces, data.test_face, data.class_set) == (["low", "mid"], "high", "tiny")
    assert data.labels == list(TINY)
    drawn = [render_face(face_of(path), list(TINY), 24) for path in tiny_faces]
    assert np.array_equal(data.train_images, np.concatenate(drawn[:2]))
    assert np.array_equal(data.test_images, drawn[2])
    assert data.train_ids.tolist() == [0, 1, 2, 3, 4] * 2
    assert data.test_ids.tolist() == [0, 1, 2, 3, 4]
    assert data.train_images.dtype == data.test_images.dtype == np.uint8
    assert data.train_ids.dtype == data.test_ids.dtype == np.int64

    other = load_cjk("tiny", faces=tiny_faces, test_face="low", cache_dir=tmp_path / "cache")
    assert (other.train_faces, other.test_face) == (["mid", "high"], "low")
    assert np.array_equal(other.test_images, drawn[0])


def test_the_default_test_face_is_zenhei_where_it_is_among_the_faces(
    build_font: BuildFont, tiny_faces: list[str], tmp_path: Path
) -> None:
    faces = [build_font("wqy-zenhei", height=500), *tiny_faces]
    data = load_cjk("tiny", faces=faces, cache_dir=tmp_path / "cache")
    assert (data.train_faces, data.test_face) == (["low", "mid", "high"], "wqy-zenhei")


def test_a_second_call_reads_the_cache(
    tiny_faces: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[tuple[str, int, int]] = []

    def load(side: int = 24) -> cjk.CjkCharacters:
        return load_cjk(
            "tiny",
            side=side,
            faces=tiny_faces,
            cache_dir=tmp_path / "cache",
            progress=lambda *step: steps.append(step),
        )

    first = load()
    files = sorted((tmp_path / "cache" / "cjk").iterdir())
    assert [file.suffix for file in files] == [".npy"] * 3
    assert steps == [("low", 5, 5), ("mid", 5, 5), ("high", 5, 5)]
    with monkeypatch.context() as patch:
        patch.setattr(cjk, "render_face", refuse_to_draw)
        second = load()
        with pytest.raises(AssertionError, match="drawn although"):
            load(side=25)
    assert steps[3:] == steps[:3]
    assert np.array_equal(first.train_images, second.train_images)
    assert np.array_equal(first.test_images, second.test_images)
    assert type(second.test_images) is np.ndarray
    load(side=25)
    assert len(set((tmp_path / "cache" / "cjk").iterdir()) - set(files)) == 3


def test_the_cache_is_addressed_by_the_fonts_content(
    build_font: BuildFont, tiny_faces: list[str], tmp_path: Path
) -> None:
    before = load_cjk("tiny", faces=tiny_faces, cache_dir=tmp_path / "cache")
    build_font("high", height=700)
    after = load_cjk("tiny", faces=tiny_faces, cache_dir=tmp_path / "cache")
    assert not np.array_equal(before.test_images, after.test_images)
    assert len(list((tmp_path / "cache" / "cjk").iterdir())) == 4


def damaged(content: bytes) -> Iterable[bytes]:
    yield content[:-1]
    yield content[:50]
    yield b""
    yield b"no array"
    yield content[:10] + b"{'descr: \xff" + content[21:]
    yield content.replace(b"(5, 24, 24)", b"(24, 5, 24)")
    yield content.replace(b"|u1", b"|i1")
    yield content[:-600] + bytes(600)


def test_a_damaged_cached_file_is_drawn_again(
    tiny_faces: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger=cjk.logger.name)
    first = load_cjk("tiny", faces=tiny_faces, cache_dir=tmp_path)
    path = tmp_path / "cjk" / cjk._cache_name(face_of(tiny_faces[1]), "tiny", 24)
    content = path.read_bytes()
    for number, other in enumerate(damaged(content), start=1):
        assert other != content
        path.write_bytes(other)
        again = load_cjk("tiny", faces=tiny_faces, cache_dir=tmp_path)
        assert np.array_equal(first.train_images, again.train_images)
        assert path.read_bytes() == content
        assert len(caplog.records) == number
        assert f"{path} is damaged" in caplog.records[-1].getMessage()


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_a_run_ended_in_the_middle_of_writing_leaves_no_file(
    tiny_faces: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: type[BaseException],
) -> None:
    folder = tmp_path / "cache" / "cjk"
    halves: list[Path] = []

    def save_half(path: Path, *args: Any, **keywords: Any) -> None:
        path.write_bytes(b"\x93NUMPY half")
        halves.append(path)
        assert not list(folder.glob("[!.]*.npy"))
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(np, "save", save_half)
        with pytest.raises(error):
            load_cjk("tiny", faces=tiny_faces, cache_dir=tmp_path / "cache")
    assert len(halves) == 1
    assert list(folder.iterdir()) == []
    load_cjk("tiny", faces=tiny_faces, cache_dir=tmp_path / "cache")
    assert len(list(folder.glob("*.npy"))) == 3


def test_the_cache_folder_follows_the_environment(
    tiny_faces: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("LABELMAPPING_CACHE", str(tmp_path / "own"))
    load_cjk("tiny", faces=tiny_faces)
    assert len(list((tmp_path / "own" / "cjk").glob("*.npy"))) == 3
    assert not (tmp_path / "xdg").exists()
    monkeypatch.delenv("LABELMAPPING_CACHE")
    load_cjk("tiny", faces=tiny_faces)
    assert len(list((tmp_path / "xdg" / "labelmapping" / "cjk").glob("*.npy"))) == 3


def test_bad_faces_are_refused(
    tiny_faces: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ArgumentError, match=r"\['low', 'mid', 'high'\]; got 'tw-kai'"):
        load_cjk("tiny", faces=tiny_faces, test_face="tw-kai", cache_dir=tmp_path)
    with pytest.raises(ArgumentError, match="must be distinct"):
        load_cjk("tiny", faces=[*tiny_faces, tiny_faces[0]], cache_dir=tmp_path)
    copy = tmp_path / "copy.ttf"
    copy.write_bytes(Path(tiny_faces[0]).read_bytes())
    with pytest.raises(ArgumentError, match=r"low.*copy.*have one content"):
        load_cjk("tiny", faces=[*tiny_faces, str(copy)], cache_dir=tmp_path)
    monkeypatch.setattr(fonts, "font_folders", list)
    with pytest.raises(DataNotFoundError, match="fonts-wqy-zenhei"):
        load_cjk("tiny", cache_dir=tmp_path)


def test_two_real_faces_draw_recognisable_characters(tmp_path: Path) -> None:
    pytest.importorskip("PIL", reason="Pillow draws the glyphs")
    pytest.importorskip("fontTools", reason="fontTools reads the character maps")
    installed = [face.name for face in installed_faces() if face.name != "tw-kai"]
    if len(installed) < 2:
        pytest.skip(f"needs two known faces beside tw-kai; installed: {installed or 'none'}")
    data = load_cjk(faces=installed[:2], cache_dir=tmp_path)
    assert data.train_images.shape == data.test_images.shape == (3_755, 24, 24)
    # Nearest template by correlation among the first 500; chance is 0.002.
    train, test = (
        images[:500].reshape(500, -1).astype(np.float32)
        for images in (data.train_images, data.test_images)
    )
    train, test = (
        centred / np.linalg.norm(centred, axis=1, keepdims=True)
        for centred in (x - x.mean(axis=1, keepdims=True) for x in (train, test))
    )
    accuracy = float(np.mean((test @ train.T).argmax(axis=1) == np.arange(500)))
    assert accuracy > 0.5, f"{data.test_face} by {data.train_faces}: {accuracy:.3f}"


def test_a_damaged_font_is_refused(build_font: BuildFont, tmp_path: Path) -> None:
    whole = Path(build_font("sound")).read_bytes()
    damaged = tmp_path / "damaged.ttf"
    damaged.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ArgumentError, match="face must be a sound font file"):
        render_face(face_of(str(damaged)), list(TINY), 24)
