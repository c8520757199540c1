"""Training one learner a site, the run folder, and answers from the learners there are."""

from ..errors import MissingExtraError

try:
    import pytorch_lightning as _lightning  # noqa: F401
    import safetensors as _safetensors  # noqa: F401
except ImportError as error:
    raise MissingExtraError(
        "labelmapping.learners needs torch, pytorch-lightning and safetensors: "
        "pip install 'labelmapping[train]'"
    ) from error

from .data import LearningData
from .ensemble import Ensemble
from .executors import ProcessExecutor, SerialExecutor
from .module_data import ModuleData
from .ray_executor import RayExecutor
from .recipe import LearnerRecipe
from .refit import feature_statistics, train_with_refit
from .run import RunFolder
from .site import train_learner
from .training import train

__all__ = [
    "Ensemble",
    "LearnerRecipe",
    "LearningData",
    "ModuleData",
    "ProcessExecutor",
    "RayExecutor",
    "RunFolder",
    "SerialExecutor",
    "feature_statistics",
    "train",
    "train_learner",
    "train_with_refit",
]
