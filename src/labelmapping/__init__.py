"""Classification with very many classes: small softmaxes over a code, decoded exactly.

Importing this module loads neither torch nor any other optional package.
"""

from importlib.metadata import version as _version

from .decoding import decode_symbols, decode_topk, log_partition
from .errors import LabelMappingError
from .mappings import (
    EcocMapping,
    HashedMapping,
    LabelMapping,
    LearnedMapping,
    MixedMapping,
    PolynomialMapping,
    RandomMapping,
    SimplexMapping,
    TableMapping,
    design,
    properties,
)

__version__ = _version("labelmapping")

__all__ = [
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
