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

from .augmentation import RandomShift
from .base import ClassHead, HeadOutput, TopClasses
from .baselines import AdaptiveSoftmaxHead, CutoffHead
from .class_softmax import ClassNormalization
from .codewords import CodewordEncoder
from .embedding import LabelMappingEmbedding
from .export import export_onnx
from .functional import label_mapping_cross_entropy
from .head import LabelMappingHead, MachHead, OneHotHead
from .hierarchical import HuffmanHead, TwoLevelHead
from .inception import InceptionV3
from .recipe_state import read_mapping
from .sampling import NegativeSamplingHead
from .trunks import Mlp, NextItemAttention, NextWordLstm, SmallCnn, ThreeConvCnn

__all__ = [
    "AdaptiveSoftmaxHead",
    "ClassHead",
    "ClassNormalization",
    "CodewordEncoder",
    "CutoffHead",
    "HeadOutput",
    "HuffmanHead",
    "InceptionV3",
    "LabelMappingEmbedding",
    "LabelMappingHead",
    "MachHead",
    "Mlp",
    "NegativeSamplingHead",
    "NextItemAttention",
    "NextWordLstm",
    "OneHotHead",
    "RandomShift",
    "SmallCnn",
    "ThreeConvCnn",
    "TopClasses",
    "TwoLevelHead",
    "export_onnx",
    "label_mapping_cross_entropy",
    "read_mapping",
]
