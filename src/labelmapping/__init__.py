"""Classification with very many classes: small softmaxes over a code, decoded exactly.

Importing this module loads neither torch nor any other optional package.
"""

from importlib.metadata import version as _version

from .decoding import decode_symbols, decode_topk, log_partition
from .errors import LabelMappingError
from .mappings import EcocMapping, LabelMapping, MixedMapping, SimplexMapping

__version__ = _version("labelmapping")

__all__ = [
    "EcocMapping",
    "LabelMapping",
    "LabelMappingError",
    "MixedMapping",
    "SimplexMapping",
    "decode_symbols",
    "decode_topk",
    "log_partition",
]
