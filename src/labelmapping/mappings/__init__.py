"""Codes for class ids. Knows no learner and no decoder."""

from .base import LabelMapping
from .ecoc import EcocMapping
from .mixed import MixedMapping
from .simplex import SimplexMapping

__all__ = ["EcocMapping", "LabelMapping", "MixedMapping", "SimplexMapping"]
