"""Codes for class ids. Knows no learner and no decoder."""

from .base import LabelMapping
from .design import Choice, design
from .ecoc import EcocMapping
from .hashed import HashedMapping
from .mixed import MixedMapping
from .polynomial import PolynomialMapping
from .properties import CodeProperties, properties
from .simplex import SimplexMapping
from .table import RandomMapping, TableMapping

__all__ = [
    "Choice",
    "CodeProperties",
    "EcocMapping",
    "HashedMapping",
    "LabelMapping",
    "MixedMapping",
    "PolynomialMapping",
    "RandomMapping",
    "SimplexMapping",
    "TableMapping",
    "design",
    "properties",
]
