"""Ready-made data for `labelmapping fit`, as Lightning data modules."""

from .image_folders import ImageFolders
from .parquet_rows import ParquetRows
from .token_sequences import TokenSequences

__all__ = ["ImageFolders", "ParquetRows", "TokenSequences"]
