"""`LabelMappingClassifier`: a scikit-learn classifier for thousands to millions of labels."""

from __future__ import annotations

import logging
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from os import PathLike
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import ArgumentError, MissingExtraError

try:
    import sklearn  # noqa: F401
except ImportError as missing:
    raise MissingExtraError(
        "labelmapping.estimator needs scikit-learn: pip install 'labelmapping[sklearn]'"
    ) from missing

from joblib import Parallel, delayed
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin
from sklearn.linear_model import LogisticRegression
from sklearn.linear_model._base import LinearClassifierMixin
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing, check_random_state, get_tags
from sklearn.utils.metadata_routing import (
    MetadataRouter,
    MethodMapping,
    process_routing,
)
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import (
    _check_sample_weight,
    _num_samples,
    check_consistent_length,
    check_is_fitted,
    validate_data,
)

from .arguments import as_integer
from .code_choice import ChosenCode, CodeWish, choose_code
from .decoding import decode_topk, log_partition
from .decoding.exhaustive import score_blocks
from .labels import LabelSet, read_labels
from .mappings import LabelMapping
from .mappings.assignment import one_thread
from .site_estimators import (
    FittedSite,
    SiteTask,
    fit_site,
    partial_fit_site,
    read_target,
    seeded,
    weight_name,
)

__all__ = ["ArbitraryCodeWarning", "LabelMappingClassifier", "TopLabels"]

logger = logging.getLogger(__name__)
# Numbers that `predict_proba` and `decision_function` may give: 2 GiB of float64.
DENSE_LIMIT = 1 << 28
# What `predict_topk` may have a probability too low by, as a share of it.
TOLERANCE = 1e-6
# Rows whose symbols are computed at a time.
ROWS = 1 << 18


class ArbitraryCodeWarning(UserWarning):
    """Linear learners on a code whose symbols have nothing to do with the classes."""


class TopLabels(NamedTuple):
    """What `predict_topk` gives, best first.

    Attributes
    ----------
    labels : array (n, k)
        Of the type of `classes_`.
    probabilities : float64 array (n, k)
        Over all classes, of which these are the largest, to five digits; 1 / N where no class is
        possible.
    """

    labels: NDArray[Any]
    probabilities: NDArray[np.float64]


class _Grown(NamedTuple):
    """What `partial_fit` changes of the classes, once all has gone well."""

    classes: NDArray[Any]
    class_ids: NDArray[np.int64]
    mapping: LabelMapping


def _learner_has(name: str) -> Any:
    """Whether the base classifier has a method: for `available_if`."""

    def check(self: LabelMappingClassifier) -> bool:
        getattr(self._learner(), name)  # its error says what is missing
        return True

    return check


class LabelMappingClassifier(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):
    """N classes as a few small problems, one a site of a code, each with its own classifier.

    In the manner of ``sklearn.multiclass.OutputCodeClassifier``, with codes at a proved
    distance, sites of about √N symbols in place of bits, and an exact answer.

    Parameters
    ----------
    estimator : classifier, optional
        With `predict_proba` or `decision_function`; pipelines too. X is passed on to it as
        it is. Default ``LogisticRegression(max_iter=200)``. One with `fit_sites` learns all
        sites at once (`TorchSiteClassifier`).
    mapping : {"auto", "one-hot", "learned", "simplex", "mixed"} or LabelMapping, default "auto"
        The code. "auto": one-hot up to 1,000 classes, unless `n_sites` or `prototypes` is
        given; else a learnt code from `prototypes`, or from the class means of X where X is a
        matrix of numbers; else simplex. The choice and its reason are in `mapping_` and
        `mapping_reason_`.
    n_sites : int, optional
        Length of the code. Default 8, or the given mapping's.
    prototypes : array (N, d), optional
        What stands for each class, in ascending order of the labels, for a learnt code.
    max_classes : int, optional
        Room for classes that `partial_fit` may bring later. Default: what the alphabets
        happen to hold.
    class_weight : dict or "balanced", optional
        Weights of labels (1 for those not named), passed to the learners as sample weights.
        For `partial_fit` a dict, of labels that the first call knows.
    probabilities : {"auto", "softmax"}, default "auto"
        "auto": the learners' `predict_proba` where they have it; else, and with "softmax", the
        softmax of `decision_function` (the logistic function of one of two symbols).
    n_jobs : int, optional
        Learners at a time, in fit (processes by joblib's default) and predict (threads). The
        result does not depend on it.
    block_bytes : int, default 2**26
        What the sites' answers to one block of rows may take in predict.
    random_state : int, RandomState or None
        Of the code and of all learners that have a `random_state` of None.
    verbose : int, default 0
        1: a line of progress with the time left on stderr.

    Attributes
    ----------
    classes_ : array (N,)
        Labels in ascending order, exactly as they came.
    mapping_ : LabelMapping
    mapping_reason_ : str
    sites_ : list of FittedSite
        A learner a site, where the learner has no `fit_sites`.
    class_ids_ : int64 array (N,)
        The class id, in the code, of each of `classes_`: its place, until `partial_fit`
        adds classes, which come last.
    n_features_in_, feature_names_in_
        As the learners tell.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> centres = rng.normal(size=(300, 16))
    >>> X, y = np.repeat(centres, 4, axis=0) + 0.1 * rng.normal(size=(1200, 16)), np.repeat(
    ...     [f"sku-{i:03d}" for i in range(300)], 4)
    >>> model = LabelMappingClassifier(n_sites=4, random_state=0).fit(X, y)
    >>> bool(model.score(centres, np.unique(y)) > 0.95)
    True
    >>> model.predict_topk(centres[:1], 3).labels.shape
    (1, 3)
    """

    classes_: NDArray[Any]
    class_ids_: NDArray[np.int64]
    mapping_: LabelMapping

    def __init__(
        self,
        estimator: Any = None,
        *,
        mapping: str | LabelMapping = "auto",
        n_sites: int | None = None,
        prototypes: ArrayLike | None = None,
        max_classes: int | None = None,
        class_weight: Mapping[Any, float] | str | None = None,
        probabilities: str = "auto",
        n_jobs: int | None = None,
        block_bytes: int = 1 << 26,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.mapping = mapping
        self.n_sites = n_sites
        self.prototypes = prototypes
        self.max_classes = max_classes
        self.class_weight = class_weight
        self.probabilities = probabilities
        self.n_jobs = n_jobs
        self.block_bytes = block_bytes
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: ArrayLike | None = None,
        **fit_params: Any,
    ) -> Self:
        """Choose the code and fit a learner a site.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame (n, d)
        y : array-like (n,)
            Labels: integers of any size, strings, bools; lists, arrays, columns of pandas
            or polars. Kept as they are.
        sample_weight : array (n,), optional
            Passed to every learner. Labels of rows with weight 0 stay among the classes.
        **fit_params
            Routed to the learners' `fit` where metadata routing is enabled.

        Raises
        ------
        ArgumentError, ArgumentTypeError
            A label is missing or of another type than the others, or an argument is wrong.
        """
        X = _narrowed(X)
        labels, ids = self._read(X, y)
        weights = self._weights(labels, ids, X, sample_weight)
        random = check_random_state(self.random_state)
        seeds = random.randint(np.iinfo(np.int32).max, size=2)
        rows, row_ids = X, ids
        if weights is not None and len(np.unique(ids[weights > 0])) == len(labels):
            # Rows that do not count do not count for the code.
            rows, row_ids = _rows(X, np.flatnonzero(weights > 0)), ids[weights > 0]
        chosen = choose_code(self._wish(), len(labels), rows, row_ids, int(seeds[0]))
        self._start(labels.classes, np.arange(len(labels)), chosen)
        self._seed = int(seeds[1])
        params = self._routed("fit", weights, fit_params)
        learner = self._learner()
        if hasattr(learner, "fit_sites"):
            self.joint_ = seeded(learner, self._seed).fit_sites(X, ids, self.mapping_, **params)
        else:
            self._warn_of_linear(learner)
            self.sites_ = self._each_site(
                fit_site,
                (
                    (learner, X, symbols, task, params)
                    for symbols, task in zip(
                        self._symbols(self.mapping_, ids), self._tasks(self.mapping_), strict=True
                    )
                ),
            )
        self._remember_names()
        return self

    @available_if(_learner_has("partial_fit"))
    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        **fit_params: Any,
    ) -> Self:
        """Go on from where the learners are; labels not seen before become new classes.

        New classes get the next free codewords, up to the capacity of the code; the
        codewords of the others stay, and no learner is resized.

        Parameters
        ----------
        X, y, sample_weight, **fit_params
            As in `fit`.
        classes : array-like, optional
            Labels to make room for, in any call; those of `y` need not be among them.

        Raises
        ------
        ArgumentError
            More classes than the code holds: says how many it does, and how to ask for more.
        """
        X = _narrowed(X)
        if self.class_weight == "balanced":
            raise ArgumentError(
                'class_weight must be a dict in partial_fit: "balanced" needs all rows at once'
            )
        labels, read = self._read(X, y)
        wanted = labels.classes
        if classes is not None:
            listed, _ = LabelSet.of(classes, "classes")
            wanted = np.unique(_joined(listed.classes, wanted))
        first = not hasattr(self, "sites_")
        if first:
            seeds = check_random_state(self.random_state).randint(np.iinfo(np.int32).max, size=2)
            chosen = choose_code(self._wish(), len(wanted), X, None, int(seeds[0]))
            self._start(wanted, np.arange(len(wanted)), chosen)
            self._seed = int(seeds[1])
            grown = _Grown(self.classes_, self.class_ids_, self.mapping_)
        else:
            grown = self._grown(wanted)
        known = LabelSet(grown.classes)
        places = known.encode(labels.classes)[read]
        weights = self._weights(known, places, X, sample_weight)
        params = self._routed("partial_fit", weights, fit_params)
        learner, mapping = self._learner(), grown.mapping
        before = [None] * mapping.n_sites if first else self.sites_
        sites = self._each_site(
            partial_fit_site,
            (
                (site, learner, X, symbols, task, params)
                for site, symbols, task in zip(
                    before,
                    self._symbols(mapping, grown.class_ids[places]),
                    self._tasks(mapping),
                    strict=True,
                )
            ),
        )
        # All or nothing: an error above leaves the classifier as it was.
        self.classes_, self.class_ids_ = grown.classes, grown.class_ids
        self.mapping_ = grown.mapping
        self.sites_ = sites
        self._remember_names()
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable label of each row, (n,)."""
        found = [decode_topk(self.mapping_, block, 1).ids[:, 0] for block in self._answers(X)]
        return self._labels_of(np.concatenate(found) if found else np.empty(0, np.int64))

    def predict_topk(self, X: Any, k: int = 10) -> TopLabels:
        """The k most probable labels of each row, and their probabilities among all classes.

        Parameters
        ----------
        X : (n, d)
        k : int, default 10
            At least 1; more than there are classes gives all of them.
        """
        k = as_integer("k", k, 1)
        ids, shares = [], []
        for block in self._answers(X):
            found = decode_topk(self.mapping_, block, k)
            ids.append(found.ids)
            shares.append(self._shares(found.scores, block))
        if not ids:
            width = min(k, len(self.classes_))
            empty = np.empty((0, width), np.int64)
            return TopLabels(self._labels_of(empty), np.empty((0, width)))
        return TopLabels(self._labels_of(np.concatenate(ids)), np.concatenate(shares))

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities of all classes, (n, N) in the order of `classes_`; rows sum to one.

        Where every class is impossible by some learner, all are equally probable.

        Raises
        ------
        ArgumentError
            There would be more than 2^28 numbers; `predict_topk` has no such limit.
        """
        scores = self._scores(X)
        most = scores.max(axis=1, keepdims=True)
        scores = np.where(np.isneginf(most), 0.0, scores - np.where(np.isneginf(most), 0.0, most))
        shares = np.exp(scores)
        shares /= shares.sum(axis=1, keepdims=True)
        return shares

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Sums of the sites' log-probabilities, (n, N); of two classes their difference, (n,)."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """The share of rows whose label is predicted; labels never seen in fit count as errors."""
        check_is_fitted(self)
        truth = LabelSet(self.classes_).find(y)
        check_consistent_length(X, truth)
        answers = LabelSet(self.classes_).find(self.predict(X))
        weights = None if sample_weight is None else np.asarray(sample_weight)
        return float(np.average(answers == truth, weights=weights))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted classifier as one safetensors file without pickles, for `load`.

        For torch learners (`TorchSiteClassifier`); others are for skops or joblib. In the file
        are weights, code, labels and the parameters that JSON can hold. The others
        (prototypes, random states that are no integers, class weights by labels that are no
        strings) matter to `fit` alone, and are left out with a warning.

        Raises
        ------
        ArgumentTypeError
            The learners are no `TorchSiteClassifier`.
        NotFittedError
        """
        check_is_fitted(self)
        from .saved_estimator import write

        write(self, path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """The classifier that `save` wrote, its answers the same; nothing of the file is run.

        Raises
        ------
        DataNotFoundError
            There is no such file.
        ArgumentError
            It is none of ours, damaged, or of a newer format.
        """
        from .saved_estimator import read

        model: Self = read(cls, path)
        return model

    def _learner(self) -> Any:
        return LogisticRegression(max_iter=200) if self.estimator is None else self.estimator

    def _read(self, X: Any, y: Any) -> tuple[LabelSet, NDArray[np.int64]]:
        """Labels and ids of y, as many as X has rows."""
        labels, ids = read_target(y, type(self).__name__)
        check_consistent_length(X, ids)
        if len(ids) == 0:
            raise ArgumentError("X must have 1 row at least, got 0 sample(s) (shape=(0, d))")
        labels.warn_of_lookalikes()
        return labels, ids

    def _wish(self) -> CodeWish:
        return CodeWish(self.mapping, self.n_sites, self.prototypes, self.max_classes)

    def _start(self, classes: NDArray[Any], ids: NDArray[np.int64], chosen: ChosenCode) -> None:
        self.classes_, self.class_ids_ = classes, ids
        self.mapping_, self.mapping_reason_ = chosen
        for learners in ("joint_", "sites_"):  # of an earlier fit
            self.__dict__.pop(learners, None)
        logger.info("%r, since %s", self.mapping_, self.mapping_reason_)

    def _grown(self, wanted: NDArray[Any]) -> _Grown:
        """With new labels, which get the next ids in ascending order; changes nothing."""
        new = wanted[LabelSet(self.classes_).find(wanted) < 0]
        if len(new) == 0:
            return _Grown(self.classes_, self.class_ids_, self.mapping_)
        total = len(self.classes_) + len(new)
        merged, places = np.unique(_joined(self.classes_, new), return_inverse=True)
        if self.mapping_.kind == "learned":
            raise ArgumentError(
                f"y must have no new classes with a learnt code, and {len(new)} are new: it places "
                'a class by a prototype, which partial_fit has not; with mapping="auto" and '
                'max_classes, "simplex" or "mixed" there is room for new ones'
            )
        try:
            grown = self.mapping_.grow(total)
        except ArgumentError as error:
            raise ArgumentError(
                f"y must have at most {self.mapping_.capacity - len(self.classes_)} new classes, "
                f"since the code holds {self.mapping_.capacity}, and {len(new)} are new: ask for "
                f"room by max_classes before the first partial_fit ({error})"
            ) from error
        ids = np.concatenate([self.class_ids_, np.arange(len(self.classes_), total)])
        class_ids = np.empty(total, np.int64)
        class_ids[places] = ids
        return _Grown(merged, class_ids, grown)

    def _weights(
        self,
        labels: LabelSet,
        ids: NDArray[np.int64],
        X: Any,
        sample_weight: ArrayLike | None,
    ) -> NDArray[np.float64] | None:
        """Sample weights times class weights, or None where there are neither."""
        weights = None
        if sample_weight is not None:
            weights = _check_sample_weight(
                sample_weight, X, dtype=np.float64, ensure_non_negative=True
            )
        if self.class_weight is None:
            return weights
        factors = np.ones(len(labels))
        if isinstance(self.class_weight, str):
            if self.class_weight != "balanced":
                raise ArgumentError(
                    f'class_weight must be a dict, "balanced" or None; got {self.class_weight!r}'
                )
            counts = np.bincount(ids, minlength=len(labels))
            factors = len(ids) / (np.count_nonzero(counts) * np.maximum(counts, 1))
        elif self.class_weight:
            # Labels of the dict that y does not have are an error that names them.
            places = labels.encode(list(self.class_weight), "class_weight")
            factors[places] = [_factor(label, v) for label, v in self.class_weight.items()]
        factors = factors[ids]
        return factors if weights is None else weights * factors

    def _routed(
        self, method: str, weights: NDArray[np.float64] | None, fit_params: Mapping[str, Any]
    ) -> dict[str, Any]:
        """What the learners' method gets beside X and the symbols."""
        params = dict(fit_params)
        if fit_params:
            params = dict(process_routing(self, method, **fit_params).estimator[method])
        if weights is not None:
            params[weight_name(self._learner())] = weights
        return params

    def _tasks(self, mapping: LabelMapping) -> list[SiteTask]:
        sizes = mapping.alphabet_sizes
        seeds = np.random.default_rng(self._seed).integers(2**31 - 1, size=len(sizes))
        return [SiteTask(q, int(s), self.probabilities) for q, s in zip(sizes, seeds, strict=True)]

    def _symbols(
        self, mapping: LabelMapping, ids: NDArray[np.int64]
    ) -> Iterator[NDArray[np.integer]]:
        """The rows' symbols, (n,) for one site after another, each in as few bytes as will do."""
        for site, size in enumerate(mapping.alphabet_sizes):
            symbols = np.empty(len(ids), np.min_scalar_type(size - 1))
            for start in range(0, len(ids), ROWS):
                block = ids[start : start + ROWS]
                symbols[start : start + ROWS] = mapping.symbols_at(block, site)
            yield symbols

    def _each_site(self, work: Any, arguments: Iterable[tuple[Any, ...]]) -> list[FittedSite]:
        """The results of the sites in order, n_jobs at a time."""
        started, sites, total = time.monotonic(), [], self.mapping_.n_sites
        run = Parallel(n_jobs=self.n_jobs, return_as="generator")
        for site in run(delayed(_on_one_thread)(work, *each) for each in arguments):
            sites.append(site)
            if self.verbose:
                left = (time.monotonic() - started) / len(sites) * (total - len(sites))
                end = "\n" if len(sites) == total else "\r"
                sys.stderr.write(f"site {len(sites)} of {total}, {left:.0f} s left{end}")
                sys.stderr.flush()
        return sites

    def _warn_of_linear(self, learner: Any) -> None:
        last = learner.steps[-1][1] if isinstance(learner, Pipeline) else learner
        arbitrary = self.mapping_.kind not in ("learned", "table") and self.mapping_.n_sites > 1
        if arbitrary and isinstance(last, LinearClassifierMixin):
            warnings.warn(
                f"{type(last).__name__} is linear, and the symbols of a {self.mapping_.kind} code "
                'have nothing to do with the classes: mapping="learned" (or prototypes=) is far '
                "more accurate with such learners",
                ArbitraryCodeWarning,
                stacklevel=3,
            )

    def _remember_names(self) -> None:
        """What the learners found out about X."""
        for name in ("n_features_in_", "feature_names_in_"):
            self.__dict__.pop(name, None)
            for learner in self._fitted_learners():
                if hasattr(learner, name):
                    setattr(self, name, getattr(learner, name))
                    break

    def _fitted_learners(self) -> list[Any]:
        if hasattr(self, "joint_"):
            return [self.joint_]
        return [site.estimator for site in self.sites_ if site.estimator is not None]

    def _answers(self, X: Any) -> Iterator[list[NDArray[np.float32]]]:
        """The sites' log-probs of one block of rows after another."""
        check_is_fitted(self)
        if hasattr(self, "n_features_in_") and getattr(X, "ndim", 2) != 2:
            raise ArgumentError(
                f"X must have shape (n, d), got {X.shape}. Reshape your data: X.reshape(1, -1) for "
                "one row, X.reshape(-1, 1) for one feature"
            )
        if hasattr(self, "n_features_in_"):
            validate_data(self, X, skip_check_array=True, reset=False)
        X = _narrowed(X)
        n_rows = _num_samples(X)
        size = max(1, self.block_bytes // (4 * sum(self.mapping_.alphabet_sizes)))
        for start in range(0, n_rows, size):
            count = min(size, n_rows - start)
            block = X if count == n_rows else _rows(X, slice(start, start + count))
            if hasattr(self, "joint_"):
                yield self.joint_.site_log_probs(block)
            else:
                yield Parallel(n_jobs=self.n_jobs, prefer="threads")(
                    delayed(site.log_probs)(block, count) for site in self.sites_
                )

    def _labels_of(self, ids: NDArray[np.int64]) -> NDArray[Any]:
        places = np.empty(len(self.class_ids_), np.int64)
        places[self.class_ids_] = np.arange(len(places))
        labels: NDArray[Any] = self.classes_[places[ids]]
        return labels

    def _scores(self, X: Any) -> NDArray[np.float64]:
        """All classes' scores, (n, N) in the order of `classes_`."""
        check_is_fitted(self)
        n_rows, n_classes = _num_samples(X), len(self.classes_)
        if n_rows * n_classes > DENSE_LIMIT:
            raise ArgumentError(
                f"X must have at most {DENSE_LIMIT // n_classes} rows for all {n_classes} classes' "
                f"scores, got {n_rows}; predict_topk(X, k) has no such limit"
            )
        scores = np.empty((n_rows, n_classes))
        row = 0
        for block in self._answers(X):
            logs = [site.astype(np.float64) for site in block]
            count, column = len(logs[0]), 0
            sites = tuple(range(self.mapping_.n_sites))
            for part in score_blocks(self.mapping_, logs, sites, None, None):
                scores[row : row + count, column : column + part.shape[1]] = part
                column += part.shape[1]
            row += count
        return scores[:, self.class_ids_]

    def _shares(
        self, scores: NDArray[np.floating], block: list[NDArray[np.float32]]
    ) -> NDArray[np.float64]:
        """Probabilities of classes from their scores (n, k), by the sites' answers."""
        total = log_partition(self.mapping_, block, tolerance=TOLERANCE).upper
        none = np.isneginf(total)
        shares: NDArray[np.float64] = np.exp(scores - np.where(none, 0.0, total)[:, None])
        shares[none] = 1 / len(self.classes_)
        return shares

    def get_metadata_routing(self) -> MetadataRouter:
        """Routing of `fit` and `partial_fit` to the learners."""
        methods = MethodMapping().add(caller="fit", callee="fit")
        methods.add(caller="partial_fit", callee="partial_fit")
        router = MetadataRouter(owner=self).add_self_request(self)
        return router.add(estimator=self._learner(), method_mapping=methods)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        base = get_tags(self._learner())
        tags.input_tags.sparse = base.input_tags.sparse
        tags.input_tags.allow_nan = base.input_tags.allow_nan
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "joint_") or hasattr(self, "sites_")

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """The parameters and, once fitted, the code and why it was chosen."""
        text: str = super().__repr__(N_CHAR_MAX)
        if not hasattr(self, "mapping_"):
            return text
        code = self.mapping_
        sizes = sorted(set(code.alphabet_sizes))
        return (
            f"{text}  # {code.kind}, {code.n_classes} classes, {code.n_sites} sites of "
            f"{'-'.join(map(str, dict.fromkeys((sizes[0], sizes[-1]))))} symbols: "
            f"{self.mapping_reason_}"
        )


def _narrowed(X: Any) -> Any:
    """A sparse X as CSR or CSC, with int32 indices where they fit: some learners want those."""
    if not issparse(X):
        return X
    if X.format not in ("csr", "csc"):
        X = X.tocsr()
    if X.indices.dtype != np.int64:
        return X
    if max(X.nnz, *X.shape) >= 2**31:
        return X
    indices, starts = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return type(X)((X.data, indices, starts), shape=X.shape)


def _rows(X: Any, places: Any) -> Any:
    """Some rows of X, whatever it is."""
    return _safe_indexing(X if hasattr(X, "__getitem__") else np.asarray(X), places)


def _on_one_thread(work: Any, *arguments: Any) -> FittedSite:
    """A learner's sums must not depend on how many of them run at a time."""
    with one_thread():
        site: FittedSite = work(*arguments)
    return site


def _factor(label: Any, weight: Any) -> float:
    try:
        factor = np.nan if isinstance(weight, (str, bytes)) else float(weight)
    except (TypeError, ValueError):
        factor = np.nan
    if not 0 <= factor < np.inf:
        raise ArgumentError(
            f"class_weight must be finite numbers of at least 0; of {label!r} it is {weight!r}"
        )
    return factor


def _joined(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """Labels of two arrays in one that holds both exactly; two types of them are refused."""
    if {a.dtype.kind, b.dtype.kind} in ({"U"}, {"S"}, {"i"}, {"u"}, {"b"}, {"f"}):
        return np.concatenate([a, b])
    values = np.empty(len(a) + len(b), object)
    values[:] = [*a.tolist(), *b.tolist()]
    return read_labels(values)
