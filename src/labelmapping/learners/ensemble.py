"""Answers from the learners that are there: any k of the sites determine the class."""

from __future__ import annotations

import copy
import logging
import math
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..arguments import as_integer
from ..decoding import TopK, decode_topk
from ..errors import ArgumentError, ArgumentTypeError, RunMismatchError
from ..mappings import LabelMapping
from .recipe import LearnerNetwork, Site, count_parameters, own_class
from .run import RunFolder
from .site import learner_name, read_weights, weights_file

__all__ = ["Ensemble", "tempered"]

logger = logging.getLogger(__name__)


class Ensemble:
    """The finished learners of a run.

    Attributes
    ----------
    mapping : LabelMapping
    labels : list of str
        The label of each class id.
    sites : tuple of int
        The sites that are there, ascending.
    temperature : float
        What every site's log-probs are divided by; see `with_temperature`.
    """

    def __init__(
        self,
        mapping: LabelMapping,
        labels: Sequence[str],
        networks: Sequence[tuple[tuple[int, ...], LearnerNetwork]],
        sites: Sequence[int] | None = None,
    ) -> None:
        self.mapping = mapping
        self.labels = list(labels)
        self._networks = [(emitted, network.eval()) for emitted, network in networks]
        there = (site for emitted, _ in self._networks for site in emitted)
        self.sites = tuple(site for site in there if sites is None or site in sites)
        self.temperature = 1.0

    @property
    def trunk(self) -> nn.Module:
        """The trunk of the first learner; of the only one, where it is joint."""
        return self._networks[0][1].trunk

    @classmethod
    def load(
        cls,
        run_folder: str | Path,
        *,
        sites: Sequence[int] | None = None,
        learners: Sequence[Site] | None = None,
        epoch: int | None = None,
        trunk_class: Callable[..., nn.Module] | None = None,
        device: str = "cpu",
    ) -> Ensemble:
        """Read the weights of a run; no pickle is loaded.

        Parameters
        ----------
        run_folder : str, Path or UPath
            A URL such as "s3://bucket/run" is on a store that fsspec speaks to.
        sites : sequence of int, optional
            Those to answer with. Default: all whose learners are finished; missing ones are
            named in a warning, with what the code still corrects without them.
        learners : sequence of int or "all", optional
            The same by learners; not beside `sites`.
        epoch : int, optional
            One of the recipe's `keep_epochs`. Default: the last weights.
        trunk_class : callable, optional
            Makes the trunk; needed where the recipe names a class outside this
            package, since a run folder must not choose what gets imported.

        Raises
        ------
        RunMismatchError
            A weight file is missing, altered or does not fit the recipe.
        """
        if sites is not None and learners is not None:
            raise ArgumentError("sites and learners must not be given both")
        run = RunFolder.load(run_folder)
        finished = run.finished()
        if sites is not None:
            sites = run.recipe.mapping.check_sites(sites)
            learners = _learners_of(run, sites, epoch)
        if learners is None:
            missing = [learner_name(s) for s in run.recipe.learners() if s not in finished]
            if missing and finished:
                logger.warning(
                    "%s: answers without %s; %s", run.path, ", ".join(missing), _cost(run, finished)
                )
        make_trunk = own_class(run.recipe.trunk) if trunk_class is None else trunk_class
        if make_trunk is None:
            raise ArgumentError(
                f"trunk_class must be given: {run.path} names {run.recipe.trunk!r}, "
                "which is no module of labelmapping.nn"
            )
        chosen = (
            finished
            if learners is None
            else sorted(set(learners), key=lambda s: -1 if s == "all" else s)
        )
        networks = []
        for learner in chosen:
            run.check_weights(learner, epoch)
            path = weights_file(run.learner_folder(learner), epoch)
            with torch.random.fork_rng(devices=[]):
                network = run.recipe.build(
                    learner, torch.zeros(run.recipe.mapping.n_classes), make_trunk
                )
            try:
                network.load_state_dict(read_weights(path))
            except (safetensors.SafetensorError, RuntimeError) as error:
                raise RunMismatchError(f"{path} does not fit the recipe: {error}") from error
            networks.append((run.recipe.sites_of(learner), network.to(device)))
        if not networks:
            raise RunMismatchError(f"{run.path} has no finished learner")
        return cls(run.recipe.mapping, run.labels, networks, sites)

    def with_temperature(self, temperature: float) -> Ensemble:
        """An ensemble of the same networks whose answers are less sure, or more below 1.

        Each site's log-probs are divided by the temperature and normalised again. The order of
        the classes stays as it is, but where sites abstain; `calibration.fit_temperature` finds
        the temperature for some held-out rows.

        Parameters
        ----------
        temperature : float
            Positive and finite; 1 for the networks' own answers.
        """
        if isinstance(temperature, bool) or not isinstance(temperature, (int, float, np.number)):
            raise ArgumentTypeError(f"temperature must be a number, got {temperature!r}")
        if not 0 < temperature < math.inf:
            raise ArgumentError(f"temperature must be positive and finite, got {temperature}")
        other = copy.copy(self)
        other.temperature = float(temperature)
        return other

    @property
    def parameters(self) -> int:
        """Trained parameters of all learners that are there."""
        return sum(count_parameters(network) for _, network in self._networks)

    def site_log_probs(self, inputs: Tensor, batch_size: int = 256) -> list[NDArray[np.float32]]:
        """Log-probabilities of rows (B, ...): one float32 array (B, q_i) for each of `sites`."""
        as_integer("batch_size", batch_size, 1)
        return [
            log_probs
            for sites, network in self._networks
            for site, log_probs in zip(sites, self._ask(network, inputs, batch_size), strict=True)
            if site in self.sites
        ]

    def topk(self, inputs: Tensor, k: int, *, sites: Sequence[int] | None = None) -> TopK:
        """The k best classes of each row, by all sites that are there or by some of them."""
        chosen = self.sites if sites is None else self.mapping.check_sites(sites)
        absent = [site for site in chosen if site not in self.sites]
        if absent:
            raise ArgumentError(f"sites must be among {list(self.sites)}, got {absent}")
        log_probs = dict(zip(self.sites, self.site_log_probs(inputs), strict=True))
        return decode_topk(self.mapping, [log_probs[s] for s in chosen], k, sites=chosen)

    def topk_within(self, inputs: Tensor, k: int, seconds: float) -> tuple[TopK, tuple[int, ...]]:
        """The k best classes by the sites that have answered in time, and which those are.

        Networks run side by side in threads. Where fewer sites than the code's dimension are
        there in time, the answer waits for as many as determine the class; networks that are
        late end in the background, and what they say is not used. One that fails is as good as
        lost, where the others determine the class; else its error is raised.

        Parameters
        ----------
        inputs : Tensor (B, ...)
        k : int
        seconds : float
            At least 0.
        """
        if not seconds >= 0:
            raise ArgumentError(f"seconds must be at least 0, got {seconds}")
        pool = ThreadPoolExecutor(len(self._networks))
        try:
            asked = {
                pool.submit(self._ask, network, inputs): sites for sites, network in self._networks
            }
            done, late = wait(asked, min(seconds, threading.TIMEOUT_MAX))
            while late and _n_sites(done, asked) < self.mapping.dimension:
                more, late = wait(late, return_when=FIRST_COMPLETED)
                done |= more
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        for answered in done:
            if (error := answered.exception()) is not None:
                if _n_sites(done, asked) < self.mapping.dimension:
                    raise error
                logger.warning("sites %s failed: %s", list(asked[answered]), error)
        there = {
            site: log_probs
            for answered in done
            if answered.exception() is None
            for site, log_probs in zip(asked[answered], answered.result(), strict=True)
            if site in self.sites
        }
        sites = tuple(sorted(there))
        return decode_topk(self.mapping, [there[s] for s in sites], k, sites=sites), sites

    def predict(self, inputs: Tensor) -> list[str]:
        """The label of the best class of each row."""
        return [self.labels[i] for i in self.topk(inputs, 1).ids[:, 0]]

    def _ask(
        self, network: LearnerNetwork, inputs: Tensor, batch_size: int = 256
    ) -> list[NDArray[np.float32]]:
        """One network's answers, at the ensemble's temperature."""
        return [tempered(p, self.temperature) for p in _answers(network, inputs, batch_size)]


def tempered(log_probs: NDArray[np.float32], temperature: float) -> NDArray[np.float32]:
    """Log-probs (B, q) divided by a temperature and normalised again."""
    if temperature == 1:
        return log_probs
    warm = log_probs.astype(np.float64) / temperature
    warm -= warm.max(axis=1, keepdims=True)
    warm -= np.log(np.exp(warm).sum(axis=1, keepdims=True))
    return warm.astype(np.float32)


def _n_sites(done: Collection[Future[Any]], asked: Mapping[Future[Any], tuple[int, ...]]) -> int:
    """How many sites have answered without an error."""
    return sum(len(asked[answered]) for answered in done if answered.exception() is None)


def _answers(
    network: LearnerNetwork, inputs: Tensor, batch_size: int = 256
) -> list[NDArray[np.float32]]:
    """One network's log-probabilities of rows (B, ...): (B, q_i) for each of its sites."""
    device = next(network.parameters()).device
    parts: list[list[NDArray[np.float32]]] = []
    with torch.inference_mode():
        for start in range(0, max(1, len(inputs)), batch_size):
            batch = inputs[start : start + batch_size].to(device)
            parts.append([p.float().cpu().numpy() for p in network.site_log_probs(batch)])
    return [np.concatenate(site) for site in zip(*parts, strict=True)]


def _learners_of(run: RunFolder, sites: Sequence[int], epoch: int | None) -> list[Site]:
    """The learners that emit these sites; refused where their weights are not there."""
    learners: list[Site] = ["all"] if run.recipe.joint else sorted(sites)
    absent = [s for s in learners if not weights_file(run.learner_folder(s), epoch).exists()]
    if absent:
        lost = sorted(sites) if run.recipe.joint else absent
        when = "" if epoch is None else f" of epoch {epoch}"
        raise RunMismatchError(f"{run.path} has no weights{when} of the sites {lost}")
    return learners


def _cost(run: RunFolder, finished: Sequence[Site]) -> str:
    """What the code still guarantees with these learners."""
    mapping = run.recipe.mapping
    left = sum(len(run.recipe.sites_of(learner)) for learner in finished)
    if left < mapping.dimension:
        return f"{left} sites do not determine the class, which takes {mapping.dimension}"
    corrects = [(n - mapping.dimension) // 2 for n in (mapping.n_sites, left)]
    return (
        f"{left} of {mapping.n_sites} sites are left, {mapping.dimension} determine the class; "
        f"up to {corrects[1]} wrong ones are corrected for certain, with all {corrects[0]}"
    )
