"""Torch modules over a mapping: heads, an input encoding, and the rivals of both.

Knows mappings and decoding, nothing of training.
"""

from ..errors import MissingExtraError

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise MissingExtraError(
        "labelmapping.nn needs torch: pip install 'labelmapping[torch]'"
    ) from error

from .baselines import CutoffHead, NegativeSamplingHead
from .embedding import LabelMappingEmbedding
from .functional import label_mapping_cross_entropy
from .head import HeadOutput, LabelMappingHead
from .trunks import NextItemAttention, NextWordLstm, SmallCnn, ThreeConvCnn

__all__ = [
    "CutoffHead",
    "HeadOutput",
    "LabelMappingEmbedding",
    "LabelMappingHead",
    "NegativeSamplingHead",
    "NextItemAttention",
    "NextWordLstm",
    "SmallCnn",
    "ThreeConvCnn",
    "label_mapping_cross_entropy",
]
