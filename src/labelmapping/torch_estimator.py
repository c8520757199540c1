"""`TorchSiteClassifier`: a perceptron in torch as the learner of `LabelMappingClassifier`."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import ArgumentError, DivergedError, MissingExtraError

try:
    import torch
    from sklearn.base import BaseEstimator, ClassifierMixin
except ImportError as missing:
    raise MissingExtraError(
        "labelmapping.torch_estimator needs torch and scikit-learn: "
        "pip install 'labelmapping[torch,sklearn]'"
    ) from missing

from scipy.sparse import issparse
from sklearn.utils import check_random_state
from sklearn.utils.validation import (
    _check_sample_weight,
    check_consistent_length,
    check_is_fitted,
    validate_data,
)
from torch import Tensor, nn

from .arguments import as_integer
from .mappings import LabelMapping, MixedMapping
from .nn import LabelMappingHead
from .site_estimators import read_target

__all__ = ["TorchSiteClassifier"]

# Rows made dense, or answered, at a time: so many, or so many numbers if those are fewer.
BLOCK, BLOCK_NUMBERS = 4096, 1 << 22
# Torch's generators belong to the process: one training at a time draws from them.
DRAWING = threading.Lock()


class TorchSiteClassifier(ClassifierMixin, BaseEstimator):
    """A multilayer perceptron, one for all sites of a code, trained by Adam in one cycle.

    As the learner of `LabelMappingClassifier` it fits all sites at once, on shared hidden
    layers. By itself it is a softmax classifier. Equal seeds give equal weights, with equal
    numbers of threads; torch's global generators are left as they were.

    Parameters
    ----------
    hidden : int or sequence of int, default 512
        Widths of hidden layers, each with layer norm and ReLU; 0 for none.
    dropout : float in [0, 1), default 0.0
    normalization : {"site", "class"}, default "site"
        As in `LabelMappingHead`.
    epochs : int, default 20
    batch_size : int, default 256
    learning_rate : float, default 3e-3
        The peak of the cycle.
    standardize : bool, default True
        Divide columns by their standard deviation, after subtracting the mean from dense ones.
    device : str, default "cpu"
        Where it trains and answers, in torch's words; the fitted weights are kept on the CPU.
    random_state : int, RandomState or None

    Attributes
    ----------
    mapping_ : LabelMapping
    classes_ : array (N,)
        Where it was fitted by itself.
    n_features_in_ : int
    """

    def __init__(
        self,
        *,
        hidden: int | Sequence[int] = 512,
        dropout: float = 0.0,
        normalization: str = "site",
        epochs: int = 20,
        batch_size: int = 256,
        learning_rate: float = 3e-3,
        standardize: bool = True,
        device: str = "cpu",
        random_state: Any = None,
    ) -> None:
        self.hidden = hidden
        self.dropout = dropout
        self.normalization = normalization
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.standardize = standardize
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Fit a softmax over the labels of y, as `fit_sites` fits those of a code."""
        self._forget()
        labels, ids = read_target(y, type(self).__name__)
        X = validate_data(self, X, accept_sparse="csr")
        check_consistent_length(X, ids)
        self._train(X, ids, MixedMapping.one_hot(len(labels)), sample_weight)
        self.classes_ = labels.classes
        return self

    def fit_sites(
        self,
        X: Any,
        ids: NDArray[np.int64],
        mapping: LabelMapping,
        *,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit all sites of a code.

        Parameters
        ----------
        X : matrix (n, d), dense or sparse
            Copied a batch at a time, as float32.
        ids : int64 array (n,)
            Class ids of the mapping.
        sample_weight : array (n,), optional
            Not negative; their scale is of no matter. Rows of weight 0 might as well not be there.

        Raises
        ------
        ArgumentError, ArgumentTypeError
            A parameter is out of range, or X or the weights are.
        DivergedError
            The loss or a weight is no longer finite.
        """
        self._forget()
        X = validate_data(self, X, accept_sparse="csr")
        check_consistent_length(X, ids)
        self._train(X, np.asarray(ids, np.int64), mapping, sample_weight)
        return self

    def _forget(self) -> None:
        """An earlier fit: where this one fails there is none."""
        for name in ("network_", "mapping_", "classes_"):
            self.__dict__.pop(name, None)

    def _train(
        self,
        X: Any,
        ids: NDArray[np.int64],
        mapping: LabelMapping,
        sample_weight: ArrayLike | None,
    ) -> None:
        epochs = as_integer("epochs", self.epochs, 1)
        size = as_integer("batch_size", self.batch_size, 1)
        if not self.learning_rate > 0:
            raise ArgumentError(f"learning_rate must be positive, got {self.learning_rate}")
        device = self._device()
        rows, weights = np.arange(len(ids)), np.ones(1)
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
            rows = np.flatnonzero(weights)
            if not len(rows):
                raise ArgumentError("sample_weight must be positive in a row at least, all are 0")
            weights = weights / weights[rows].mean()
        weights = np.broadcast_to(weights, len(ids)).astype(np.float32)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        with _seeded(seed, device):
            network = self.new_network(X.shape[1], mapping)
            if self.standardize:
                network.centre, network.scale = _moments(X, rows)
            network.to(device)
            steps = epochs * -(-len(rows) // size)
            optimizer = torch.optim.Adam(network.parameters(), lr=self.learning_rate)
            schedule = torch.optim.lr_scheduler.OneCycleLR(
                optimizer, self.learning_rate, total_steps=max(steps, 2)
            )
            for step, places in enumerate(_batches(len(rows), size, epochs)):
                batch = rows[places]
                optimizer.zero_grad()
                loss = network(
                    _dense(X, batch).to(device),
                    torch.from_numpy(ids[batch]).to(device),
                    torch.from_numpy(weights[batch]).to(device),
                )
                self._check_finite("loss", loss, step)
                loss.backward()
                optimizer.step()
                schedule.step()
        for parameter in network.parameters():
            self._check_finite("weights", parameter.sum(), steps - 1)
        self.mapping_ = mapping
        self.network_ = network.cpu().eval()

    def new_network(self, width: int, mapping: LabelMapping) -> SiteNetwork:
        """A network for rows of d numbers, its weights drawn by torch's global generator."""
        head = LabelMappingHead(
            width,
            mapping,
            hidden=self.hidden,
            dropout=self.dropout,
            normalization=self.normalization,
            reduction="none",
        )
        return SiteNetwork(head)

    def site_log_probs(self, X: Any) -> list[NDArray[np.float32]]:
        """Log-probabilities of rows X (n, d), float32 (n, q_i) for each site."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", reset=False)
        device = self._device()
        # A copy, so that threads may ask at once and the weights stay where they are.
        network = self.network_ if device.type == "cpu" else copy.deepcopy(self.network_).to(device)
        n_rows = X.shape[0]
        found = [np.empty((n_rows, q), np.float32) for q in self.mapping_.alphabet_sizes]
        with torch.inference_mode():
            for rows in _blocks(np.arange(n_rows), X.shape[1]):
                answers = network.site_log_probs(_dense(X, rows).to(device))
                for site, answer in zip(found, answers, strict=True):
                    site[rows] = answer.cpu().numpy()
        return found

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """Probabilities of `classes_`, (n, N)."""
        check_is_fitted(self, "classes_")
        # A site has two symbols at least, and a class may be alone.
        shares: NDArray[np.float32] = np.exp(self.site_log_probs(X)[0][:, : len(self.classes_)])
        shares /= shares.sum(axis=1, keepdims=True)
        return shares

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable label of each row, (n,)."""
        places = self.predict_proba(X).argmax(axis=1)
        labels: NDArray[Any] = self.classes_[places]
        return labels

    def _device(self) -> torch.device:
        try:
            torch.zeros(1, device=self.device).cpu()
            return torch.device(self.device)
        except (RuntimeError, AssertionError, TypeError) as error:
            raise ArgumentError(
                f"device must be one that torch has here, got {self.device!r}: {error}"
            ) from error

    def _check_finite(self, what: str, value: Tensor, step: int) -> None:
        if not bool(torch.isfinite(value.detach())):
            raise DivergedError(
                f"TorchSiteClassifier: the {what} became {value.item()} at step {step + 1}; "
                f"a lower learning_rate than {self.learning_rate}, or standardize=True, may help"
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class SiteNetwork(nn.Module):
    """Columns brought to one scale, and the head.

    Attributes
    ----------
    centre, scale : float32 Tensor (d,)
        What is subtracted from the columns, and what they are divided by.
    """

    centre: Tensor
    scale: Tensor

    def __init__(self, head: LabelMappingHead) -> None:
        super().__init__()
        self.register_buffer("centre", torch.zeros(head.in_features))
        self.register_buffer("scale", torch.ones(head.in_features))
        self.head = head

    def forward(self, rows: Tensor, target: Tensor, weights: Tensor) -> Tensor:
        """The mean of the rows' losses times their weights."""
        loss: Tensor = self.head(self._scaled(rows), target, sample_weight=weights).loss
        return loss.mean()

    def site_log_probs(self, rows: Tensor) -> tuple[Tensor, ...]:
        """(n, q_i), a tensor a site."""
        return self.head.site_log_probs(self._scaled(rows))

    def _scaled(self, rows: Tensor) -> Tensor:
        return (rows - self.centre) / self.scale


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Torch's generators of the CPU and of a GPU with a seed, and afterwards as they were."""
    with DRAWING, torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield


def _batches(n_rows: int, size: int, epochs: int) -> Iterator[NDArray[np.int64]]:
    """Every row once an epoch, in random order."""
    for _ in range(epochs):
        for rows in torch.split(torch.randperm(n_rows), size):
            yield rows.numpy()


def _blocks(rows: NDArray[np.int64], width: int) -> Iterator[NDArray[np.int64]]:
    """The rows, a block at a time."""
    size = max(1, min(BLOCK, BLOCK_NUMBERS // width))
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def _narrow(block: Any) -> Any:
    """Some rows of X, dense or sparse, as float32."""
    with np.errstate(over="ignore"):
        block = block.astype(np.float32)
    if not np.isfinite(block.data if issparse(block) else block).all():
        raise ArgumentError("X must hold numbers that are finite as float32, and one is too large")
    return block


def _dense(X: Any, rows: NDArray[np.int64]) -> Tensor:
    """Some rows of X as a float32 tensor."""
    block = _narrow(X[rows])
    return torch.from_numpy(np.ascontiguousarray(block.toarray() if issparse(block) else block))


def _moments(X: Any, rows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """Mean (0 of sparse columns) and standard deviation (1 of constant ones), float32 (d,)."""
    width = X.shape[1]
    total, squares = np.zeros(width), np.zeros(width)
    for part in _blocks(rows, width):
        block = _narrow(X[part]).astype(np.float64)
        total += np.asarray(block.sum(axis=0)).ravel()
        squared = block.multiply(block) if issparse(block) else block * block
        squares += np.asarray(squared.sum(axis=0)).ravel()
    mean = total / len(rows)
    deviation = np.sqrt(np.maximum(squares / len(rows) - mean**2, 0))
    # Constant but for rounding, or too small to divide by.
    deviation[deviation < np.maximum(1e-6 * np.abs(mean), np.finfo(np.float32).tiny)] = 1.0
    centre = np.zeros(width) if issparse(X) else mean
    return torch.from_numpy(centre).float(), torch.from_numpy(deviation).float()
