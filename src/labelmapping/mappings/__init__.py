"""Codes for class ids. Knows no learner and no decoder."""

from .base import LabelMapping
from .cooccurrence import cooccurrence_factors
from .design import Choice, design
from .ecoc import EcocMapping
from .hashed import HashedMapping
from .learned import LearnedMapping
from .mixed import MixedMapping
from .polynomial import PolynomialMapping
from .properties import CodeProperties, properties
from .prototypes import ClassStatistics, class_means, class_statistics
from .simplex import SimplexMapping
from .structured import discriminant_tree, natural_order, product_quantisation
from .table import RandomMapping, TableMapping

__all__ = [
    "Choice",
    "ClassStatistics",
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
    "class_statistics",
    "cooccurrence_factors",
    "design",
    "discriminant_tree",
    "natural_order",
    "product_quantisation",
    "properties",
]
