"""From the learners' log-probs back to classes. Knows mappings, no learner."""

from .api import TopK, decode_topk
from .hard import Nearest, decode_symbols, margin_scores
from .partition import LogPartition, log_partition

__all__ = [
    "LogPartition",
    "Nearest",
    "TopK",
    "decode_symbols",
    "decode_topk",
    "log_partition",
    "margin_scores",
]
