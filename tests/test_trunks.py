"""The experiments' networks: shapes, refusals, and what the paper fixes of them."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labelmapping.errors import ArgumentError, ArgumentTypeError
from labelmapping.mappings import MixedMapping
from labelmapping.nn import NextItemAttention, NextWordLstm, RandomShift, SmallCnn, ThreeConvCnn

WORDS = MixedMapping(7409, [107, 109, 113])


def draw_images(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(256, shape, generator=generator).to(torch.uint8)


def draw_words(*shape: int, n_words: int = 7409) -> Tensor:
    return torch.randint(n_words, shape, generator=torch.Generator().manual_seed(0))


# A full history, short ones, and an empty one.
HISTORIES = torch.tensor(
    [[7, 3, 4, 4, 1], [-1, -1, 3, 4, 1], [-1, -1, -1, -1, 9], [-1, -1, -1, -1, -1]]
)


def new_attention(**options: Any) -> NextItemAttention:
    torch.manual_seed(0)
    options = {"length": 5, "width": 8, **options}
    return NextItemAttention(MixedMapping.one_hot(10), **options).double()


def new_lstm(input_mapping: Any = WORDS, **options: Any) -> NextWordLstm:
    torch.manual_seed(0)
    return NextWordLstm(input_mapping, **{"embedding_dim": 6, "units": 5, **options})


@pytest.mark.parametrize("shape", [(400, 5, 6), (400, 3, 5, 6)])
def test_random_shift_moves_each_image_by_itself(shape: tuple[int, ...]) -> None:
    """Every image is one of the 25 shifted with repeated edges, all occur, channels together."""
    images = draw_images(*shape)
    torch.manual_seed(0)
    shift = RandomShift(2)
    moved = shift(images)
    assert moved.dtype == torch.uint8
    assert moved.shape == images.shape
    padded = F.pad(images.double().view(400, -1, 5, 6), (2, 2, 2, 2), mode="replicate")
    found = set()
    for number, image in enumerate(moved.view(400, -1, 5, 6).double()):
        fits = [
            (y, x)
            for y in range(5)
            for x in range(5)
            if torch.equal(image, padded[number, :, y : y + 5, x : x + 6])
        ]
        assert fits, number
        found.update(fits)
    assert len(found) == 25
    assert torch.equal(shift.eval()(images), images)


def test_shift_is_for_training_alone() -> None:
    images = draw_images(4, 24, 24)
    torch.manual_seed(0)
    plain = SmallCnn()
    trunk = SmallCnn(shift=1)
    trunk.load_state_dict(plain.state_dict())  # no tensors of its own
    assert torch.equal(plain.eval()(images), trunk.eval()(images))
    assert not torch.equal(plain.train()(images), trunk.train()(images))
    with pytest.raises(ArgumentError, match="shift must be at least 0, got -1"):
        SmallCnn(shift=-1)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"side": 8},
        {"side": 9},
        {"side": 31},
        {"side": 4, "widths": (3, 5)},
        {"side": 24, "widths": [4], "out_features": 7},
    ],
    ids=str,
)
def test_small_cnn_shapes(options: dict[str, Any]) -> None:
    trunk = SmallCnn(**options)
    side = options.get("side", 24)
    features = trunk(draw_images(3, side, side))
    assert features.shape == (3, trunk.out_features)
    assert trunk.out_features == options.get("out_features", 128)
    assert features.dtype == torch.float32
    assert bool((features >= 0).all())


def test_small_cnn_takes_grey_values_as_fractions_of_255() -> None:
    torch.manual_seed(0)
    trunk = SmallCnn(side=8).eval()
    images = draw_images(2, 8, 8)
    pixels = (images.double() / 255).float()[:, None]
    maps = trunk.convolutions(pixels)
    expected = F.relu(F.linear(maps.flatten(1), trunk.dense.weight, trunk.dense.bias))
    torch.testing.assert_close(trunk(images), expected)
    torch.testing.assert_close(trunk(images.float()), expected)
    assert trunk.double()(images).dtype == torch.float64


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"side": 7}, ArgumentError, "side must be at least 8 for 3 poolings, got 7"),
        ({"side": 1, "widths": [4]}, ArgumentError, "side must be at least 2 for 1 poolings"),
        ({"side": 0}, ArgumentError, "side must be at least 1"),
        ({"side": 24.0}, ArgumentTypeError, "side must be an integer"),
        ({"out_features": 0}, ArgumentError, "out_features must be at least 1"),
    ],
    ids=str,
)
def test_small_cnn_refuses_what_it_cannot_pool(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        SmallCnn(**options)


def test_three_conv_cnn_shapes_and_layers() -> None:
    trunk = ThreeConvCnn()
    features = trunk(torch.randn(2, 3, 32, 32))
    assert features.shape == (2, trunk.out_features) == (2, 128)
    assert [type(m).__name__ for m in trunk.layers] == [
        *["Conv2d", "ReLU", "AvgPool2d"] * 3,
        *["Dropout", "Flatten", "Linear", "ReLU", "Dropout"],
    ]
    convolutions = [m for m in trunk.modules() if isinstance(m, nn.Conv2d)]
    assert [m.out_channels for m in convolutions] == [32, 64, 128]
    assert all(m.bias is None and m.padding == (0, 0) for m in convolutions)
    assert [m.p for m in trunk.modules() if isinstance(m, nn.Dropout)] == [0.25, 0.25]
    assert [m.p for m in ThreeConvCnn(0.5).modules() if isinstance(m, nn.Dropout)] == [0.5, 0.5]
    # Bytes are colours as fractions of 255.
    colours = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    trunk.eval()
    assert torch.equal(trunk(colours), trunk(colours.float() / 255))
    assert not torch.equal(trunk(colours), trunk(colours // 2))


def test_in_evaluation_an_answer_depends_on_its_row_alone() -> None:
    torch.manual_seed(0)
    cases = [
        (SmallCnn(side=8), draw_images(4, 8, 8)),
        (ThreeConvCnn(), torch.randn(4, 3, 32, 32)),
        (new_lstm(), draw_words(4, 7)),
        (new_attention(), HISTORIES),
    ]
    for trunk, rows in cases:
        trunk.eval()
        features = trunk(rows)
        assert torch.equal(trunk(rows), features)
        torch.testing.assert_close(trunk(rows[2:3]), features[2:3])


def test_dropout_and_batch_statistics_act_in_training() -> None:
    torch.manual_seed(0)
    images = torch.randn(4, 3, 32, 32)
    cnn = ThreeConvCnn()
    assert not torch.equal(cnn(images), cnn(images))
    small = SmallCnn(side=8)
    grey = draw_images(4, 8, 8)
    assert not torch.equal(small(grey)[:2], small(grey[:2]))


@pytest.mark.parametrize("length", [1, 7])
def test_lstm_shapes(length: int) -> None:
    trunk = new_lstm()
    features = trunk(draw_words(3, length))
    assert features.shape == (3, trunk.out_features) == (3, 5)
    assert bool((features >= 0).all())
    assert NextWordLstm(WORDS).out_features == 100


def test_lstm_equals_its_equations_with_one_bias_a_gate() -> None:
    trunk = new_lstm().double()
    words = draw_words(2, 4)
    inputs = trunk.embedding(words).unbind(dim=1)
    for layer in range(2):
        weights = {n: p for n, p in trunk.lstm.named_parameters() if n.endswith(f"_l{layer}")}
        state = memory = torch.zeros(2, 5, dtype=torch.float64)
        states = []
        for x in inputs:
            gates = F.linear(x, weights[f"weight_ih_l{layer}"], weights[f"bias_ih_l{layer}"])
            gates = gates + F.linear(state, weights[f"weight_hh_l{layer}"])
            i, f, g, o = gates.chunk(4, dim=-1)
            memory = f.sigmoid() * memory + i.sigmoid() * g.tanh()
            state = o.sigmoid() * memory.tanh()
            states.append(state)
        inputs = tuple(states)
    expected = F.relu(F.linear(inputs[-1], trunk.dense.weight, trunk.dense.bias))
    torch.testing.assert_close(trunk(words), expected)


def test_the_second_bias_stays_zero_and_all_else_is_trained() -> None:
    trunk = new_lstm()
    before = {name: p.detach().clone() for name, p in trunk.named_parameters()}
    optimizer = torch.optim.SGD(trunk.parameters(), lr=1.0, weight_decay=0.1)
    # Not the sum of the features: a unit behind a closed ReLU would be no proof.
    for step in range(3):
        optimizer.zero_grad()
        trunk(draw_words(64, 7) + step).square().sum().backward()
        optimizer.step()
    for name, parameter in trunk.named_parameters():
        if "bias_hh" in name:
            assert not parameter.requires_grad
            assert parameter.grad is None
            assert not parameter.any(), name
        else:
            assert not torch.equal(parameter, before[name]), name


def test_word_order_matters() -> None:
    trunk = new_lstm().double()
    words = torch.tensor([[1, 2, 3, 4], [1, 3, 2, 4], [4, 3, 2, 1]])
    features = trunk(words)
    assert len(torch.unique(features, dim=0)) == 3
    assert not torch.equal(features[0], features[1])


def test_cutoff_gives_all_rare_words_the_last_class() -> None:
    mapping = MixedMapping.one_hot(724)
    trunk = new_lstm(mapping, cutoff=True)
    words = torch.tensor([[5, 723, 6], [5, 724, 6], [5, 7408, 6], [5, 722, 6]])
    features = trunk(words)
    assert torch.equal(features[1], features[0])
    assert torch.equal(features[2], features[0])
    assert not torch.equal(features[3], features[0])
    narrow = words[3:].clamp(max=255).to(torch.uint8)
    assert torch.equal(trunk(narrow), trunk(narrow.long()))
    with pytest.raises(ArgumentError, match=r"input must lie in 0\.\.723 .*; input\[1, 1\] is 724"):
        new_lstm(mapping)(words)
    with pytest.raises(ArgumentError, match=r"input\[0, 0\] is -1"):
        trunk(torch.tensor([[-1, 0]]))


@pytest.mark.parametrize("cutoff", [False, True])
def test_words_that_are_no_integers_are_refused(cutoff: bool) -> None:
    with pytest.raises(ArgumentTypeError, match=r"must be integers, got torch\.float32"):
        new_lstm(cutoff=cutoff)(torch.zeros(1, 2))


def test_a_recipe_is_as_good_as_its_mapping() -> None:
    from_object, from_recipe = new_lstm(WORDS), new_lstm(WORDS.to_config())
    assert from_recipe.embedding.mapping == WORDS
    words = draw_words(3, 7)
    assert torch.equal(from_recipe(words), from_object(words))
    with pytest.raises(ArgumentError, match="kind of the recipe must be one of"):
        new_lstm({"format": 1, "kind": "none"})


def test_sizes_below_one_are_refused() -> None:
    with pytest.raises(ArgumentError, match="units must be at least 1, got 0"):
        new_lstm(units=0)
    with pytest.raises(ArgumentError, match="embedding_dim must be at least 1, got 0"):
        new_lstm(embedding_dim=0)


def plain_attention(trunk: NextItemAttention, items: list[int]) -> Tensor:
    """The features of one history without padding, a place at a time."""
    vectors = trunk.embedding(torch.tensor(items)) + trunk.places[trunk.length - len(items) :]
    block: Any
    for block in trunk.blocks:
        normed = block.norm(vectors)
        queries = block.query(normed)
        keys, values = block.key_value(normed).chunk(2, dim=-1)
        places = []
        for place in range(len(items)):
            parts = []
            for q, k, v in zip(
                queries[place].chunk(block.heads),
                keys[: place + 1].chunk(block.heads, dim=1),
                values[: place + 1].chunk(block.heads, dim=1),
                strict=True,
            ):
                parts.append(torch.softmax(k @ q / len(q) ** 0.5, dim=0) @ v)
            places.append(torch.cat(parts))
        vectors = vectors + block.output(torch.stack(places))
        vectors = vectors + block.dense(vectors)
    return F.layer_norm(vectors[-1], [8], trunk.norm.weight, trunk.norm.bias)


@pytest.mark.parametrize("options", [{}, {"blocks": 1}, {"blocks": 3, "heads": 4}], ids=str)
def test_attention_equals_its_equations_without_padding(options: dict[str, Any]) -> None:
    trunk = new_attention(**options).eval()
    assert len(trunk.blocks) == options.get("blocks", 2)
    features = trunk(HISTORIES)
    assert features.shape == (4, trunk.out_features) == (4, 8)
    for row, history in zip(features, HISTORIES.tolist(), strict=True):
        items = [item for item in history if item >= 0] or [-1]
        torch.testing.assert_close(row, plain_attention(trunk, items))


def test_attention_takes_shorter_windows_and_refuses_longer_ones() -> None:
    trunk = new_attention().eval()
    torch.testing.assert_close(trunk(HISTORIES[1:, 2:]), trunk(HISTORIES[1:]))
    assert trunk(HISTORIES[:0]).shape == (0, 8)
    for columns in (0, 6):
        with pytest.raises(ArgumentError, match=f"must have 1 to 5 columns, got {columns}"):
            trunk(torch.zeros(2, columns, dtype=torch.int64))
    with pytest.raises(ArgumentError, match=r"must lie in 0\.\.9"):
        trunk(torch.tensor([[-2, 3]]))
    with pytest.raises(ArgumentTypeError, match=r"must be integers, got torch\.float32"):
        trunk(torch.zeros(1, 5))


def test_attention_trains_every_weight_and_drops_out_in_training() -> None:
    trunk = new_attention(dropout=0.5)
    assert not torch.equal(trunk(HISTORIES), trunk(HISTORIES))
    calm = new_attention(dropout=0.0)
    assert torch.equal(calm(HISTORIES), calm.eval()(HISTORIES))
    # Not the sum: layer norm keeps that as it is.
    calm(HISTORIES).pow(3).sum().backward()
    for name, parameter in calm.named_parameters():
        assert parameter.grad is not None, name
        assert bool(parameter.grad.any()), name
    missing = [0, 2, 5, 6, 8]
    assert not calm.embedding.weight.grad[missing].any()  # type: ignore[index]


def test_attention_refuses_what_does_not_fit() -> None:
    with pytest.raises(ArgumentError, match="width must be a multiple of heads, 3; got 8"):
        new_attention(heads=3)
    for name in ("length", "width", "blocks", "heads"):
        with pytest.raises(ArgumentError, match=f"{name} must be at least 1, got 0"):
            new_attention(**{name: 0})
    recipe = MixedMapping(10, [3, 5]).to_config()
    assert NextItemAttention(recipe).embedding.mapping == MixedMapping(10, [3, 5])
