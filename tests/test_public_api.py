"""The names others may rely on, what importing them costs, and the errors they catch."""

import importlib
import inspect
import json
import subprocess
import sys
from importlib.metadata import version
from types import ModuleType

import pytest

import labelmapping
from labelmapping import errors

# A name leaves this list, or is added to it, with an entry in CHANGELOG.md.
PUBLIC = [
    "EcocMapping",
    "HashedMapping",
    "LabelMapping",
    "LabelMappingError",
    "LearnedMapping",
    "MixedMapping",
    "PolynomialMapping",
    "RandomMapping",
    "SimplexMapping",
    "TableMapping",
    "decode_symbols",
    "decode_topk",
    "design",
    "log_partition",
    "properties",
]
OPTIONAL = ["galois", "matplotlib", "pytorch_lightning", "ray", "sklearn", "torch"]

BLOCK_TORCH = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocked())
"""


def run_fresh(code: str) -> str:
    """What a new interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def public_modules() -> list[ModuleType]:
    names = ["", ".arguments", ".atomic", ".decoding", ".errors", ".mappings"]
    return [importlib.import_module(f"labelmapping{name}") for name in names]


def test_the_public_names_are_exactly_these() -> None:
    assert labelmapping.__all__ == PUBLIC
    assert all(hasattr(labelmapping, name) for name in PUBLIC)
    assert labelmapping.__version__ == version("labelmapping")


@pytest.mark.parametrize("module", public_modules(), ids=lambda module: module.__name__)
def test_every_listed_name_is_there_and_sorted(module: ModuleType) -> None:
    listed = module.__all__
    assert sorted(set(listed)) == sorted(listed)
    assert [name for name in listed if not hasattr(module, name)] == []


@pytest.mark.parametrize("module", public_modules(), ids=lambda module: module.__name__)
def test_everything_public_has_a_docstring(module: ModuleType) -> None:
    assert module.__doc__
    bare = []
    for name in module.__all__:
        thing = getattr(module, name)
        if callable(thing) and not inspect.getdoc(thing):
            bare.append(name)
        if inspect.isclass(thing):
            own = [member for member in vars(thing) if not member.startswith("_")]
            bare += [
                f"{name}.{member}"
                for member in own
                if (callable(getattr(thing, member)) or isinstance(vars(thing)[member], property))
                and not inspect.getdoc(getattr(thing, member))
            ]
    assert bare == []


def test_importing_it_loads_no_optional_package() -> None:
    code = "import json, sys, labelmapping; print(json.dumps(sorted(sys.modules)))"
    loaded = set(json.loads(run_fresh(code)))
    assert "labelmapping.mappings" in loaded
    assert sorted(loaded & set(OPTIONAL)) == []


def test_codes_and_decoding_work_without_torch() -> None:
    code = """
import numpy as np
import labelmapping
mapping = labelmapping.MixedMapping(30, [7, 11])
log_probs = [np.zeros((1, 7)), np.zeros((1, 11))]
log_probs[0][0, 3] = log_probs[1][0, 2] = 1
print(labelmapping.decode_topk(mapping, log_probs, 1).ids.tolist())
"""
    assert run_fresh(BLOCK_TORCH + code) == "[[24]]\n"


@pytest.mark.parametrize(
    "block", [BLOCK_TORCH, "import sys; sys.modules['torch'] = None\n"], ids=["finder", "None"]
)
def test_without_torch_nn_names_the_extra_to_install(block: str) -> None:
    code = """
import labelmapping.errors
try:
    import labelmapping.nn
except labelmapping.errors.MissingExtraError as error:
    assert isinstance(error, ImportError)
    assert isinstance(error.__cause__, ImportError)
    print(error)
"""
    message = run_fresh(block + code)
    assert "labelmapping[torch]" in message
    assert message.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "builtins"),
    [
        ("ArgumentError", [ValueError]),
        ("ArgumentTypeError", [TypeError, ValueError]),
        ("DataNotFoundError", [FileNotFoundError, OSError]),
        ("DivergedError", [ArithmeticError]),
        ("LabelMappingError", [Exception]),
        ("MissingExtraError", [ImportError]),
        ("RunMismatchError", [ValueError]),
    ],
)
def test_each_error_is_the_builtin_it_is(name: str, builtins: list[type[Exception]]) -> None:
    kind = getattr(errors, name)
    assert issubclass(kind, errors.LabelMappingError)
    assert all(issubclass(kind, builtin) for builtin in builtins)
    assert str(kind("what came")) == "what came"


def test_no_error_is_left_out_of_the_list() -> None:
    kinds = [
        name
        for name, thing in vars(errors).items()
        if inspect.isclass(thing) and issubclass(thing, Exception)
    ]
    assert sorted(kinds) == sorted(errors.__all__)
    assert labelmapping.LabelMappingError is errors.LabelMappingError
