"""Answers from the learners that are there: any k of the sites determine the class."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..decoding import TopK, decode_topk
from ..errors import ArgumentError, RunMismatchError
from ..mappings import LabelMapping
from .recipe import LearnerNetwork, Site, count_parameters, own_class
from .run import RunFolder
from .site import learner_name, weights_file

__all__ = ["Ensemble"]

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
    """

    def __init__(
        self,
        mapping: LabelMapping,
        labels: Sequence[str],
        networks: Sequence[tuple[tuple[int, ...], LearnerNetwork]],
    ) -> None:
        self.mapping = mapping
        self.labels = list(labels)
        self._networks = [(sites, network.eval()) for sites, network in networks]
        self.sites = tuple(site for sites, _ in self._networks for site in sites)

    @property
    def trunk(self) -> nn.Module:
        """The trunk of the first learner; of the only one, where it is joint."""
        return self._networks[0][1].trunk

    @classmethod
    def load(
        cls,
        run_folder: str | Path,
        *,
        learners: Sequence[Site] | None = None,
        epoch: int | None = None,
        trunk_class: Callable[..., nn.Module] | None = None,
        device: str = "cpu",
    ) -> Ensemble:
        """Read the weights of a run; no pickle is loaded.

        Parameters
        ----------
        learners : sequence of int or "all", optional
            Default: all that are finished; missing ones are named in a warning.
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
        run = RunFolder.load(run_folder)
        finished = run.finished()
        if learners is None:
            missing = [learner_name(s) for s in run.recipe.learners() if s not in finished]
            if missing:
                logger.warning("%s: answers without %s", run.path, ", ".join(missing))
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
                network.load_state_dict(safetensors.torch.load_file(path))
            except (safetensors.SafetensorError, RuntimeError) as error:
                raise RunMismatchError(f"{path} does not fit the recipe: {error}") from error
            networks.append((run.recipe.sites_of(learner), network.to(device)))
        if not networks:
            raise RunMismatchError(f"{run.path} has no finished learner")
        return cls(run.recipe.mapping, run.labels, networks)

    @property
    def parameters(self) -> int:
        """Trained parameters of all learners that are there."""
        return sum(count_parameters(network) for _, network in self._networks)

    def site_log_probs(self, inputs: Tensor, batch_size: int = 256) -> list[NDArray[np.float32]]:
        """Log-probabilities of rows (B, ...): one float32 array (B, q_i) for each of `sites`."""
        device = next(self._networks[0][1].parameters()).device
        sizes = [self.mapping.alphabet_sizes[site] for site in self.sites]
        answers = [np.empty((len(inputs), size), np.float32) for size in sizes]
        with torch.inference_mode():
            for start in range(0, len(inputs), batch_size):
                batch = inputs[start : start + batch_size].to(device)
                found = [p for _, network in self._networks for p in network.site_log_probs(batch)]
                for answer, log_probs in zip(answers, found, strict=True):
                    answer[start : start + batch_size] = log_probs.float().cpu().numpy()
        return answers

    def topk(self, inputs: Tensor, k: int, *, sites: Sequence[int] | None = None) -> TopK:
        """The k best classes of each row, by all sites that are there or by some of them."""
        chosen = self.sites if sites is None else self.mapping.check_sites(sites)
        absent = [site for site in chosen if site not in self.sites]
        if absent:
            raise ArgumentError(f"sites must be among {list(self.sites)}, got {absent}")
        log_probs = dict(zip(self.sites, self.site_log_probs(inputs), strict=True))
        return decode_topk(self.mapping, [log_probs[s] for s in chosen], k, sites=chosen)

    def predict(self, inputs: Tensor) -> list[str]:
        """The label of the best class of each row."""
        return [self.labels[i] for i in self.topk(inputs, 1).ids[:, 0]]
