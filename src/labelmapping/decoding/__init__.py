"""From the learners' log-probs back to classes. Knows mappings, no learner."""

from .api import TopK, decode_topk

__all__ = ["TopK", "decode_topk"]
