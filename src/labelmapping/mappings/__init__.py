"""Codes for class ids. Knows no learner and no decoder."""

from .base import LabelMapping
from .design import Choice, design
from .ecoc import EcocMapping
from .hashed import HashedMapping
from .learned import LearnedMapping
from .mixed import MixedMapping
from .polynomial import PolynomialMapping
from .properties import CodeProperties, properties
from .prototypes import class_means
from .simplex import SimplexMapping
from .table import RandomMapping, TableMapping

__all__ = [
    "Choice",
    "CodeProperties",
    "EcocMapping",
    "HashedMapping",
    "LabelMapping",
    "LearnedMapping",
    "MixedMapping",
    "PolynomialMapping",
    "RandomMapping",
    "SimplexMapping",
    "TableMapping",
    "class_means",
    "design",
    "properties",
]
