"""The recipe of a module's code in its saved state: weights of another code are refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import ArgumentError
from ..mappings import LabelMapping
from .codewords import check_extends

__all__ = ["RecipeState", "read_mapping"]

RECIPE = "_extra_state"  # torch's name for what a module adds to its state


class RecipeState(nn.Module):
    """A module whose ``state_dict`` holds the recipe of its `mapping` beside its tensors."""

    mapping: LabelMapping

    def get_extra_state(self) -> Tensor:
        """Recipe and sites as bytes of JSON: a tensor, so that safetensors can hold it."""
        state = {"mapping": self.mapping.to_config(), "sites": self._sites()}
        text = bytearray(json.dumps(state, sort_keys=True).encode())
        return torch.frombuffer(text, dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        """Refuse weights of another code or of other sites; more or fewer classes are the same.

        Raises
        ------
        ArgumentError
            Says in what the recipes differ.
        """
        theirs, sites = _read(state)
        check_extends("state_dict", theirs, self.mapping)
        ours = self._sites()
        if sites != ours:
            raise ArgumentError(
                f"state_dict must be for the same sites: {_named(ours)} here and {_named(sites)} "
                "there"
            )

    def _sites(self) -> tuple[int, ...] | None:
        """The sites that the module has; None for all of them in order."""
        return None

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        *rest: Any,
    ) -> None:
        key = prefix + RECIPE
        if key in state_dict:  # compared before any tensor is copied
            self.set_extra_state(state_dict[key])
            state_dict = {name: value for name, value in state_dict.items() if name != key}
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, *rest
        )
        # It is missing, too, in weights of versions that kept no recipe.
        if key in missing_keys:
            missing_keys.remove(key)


def read_mapping(state_dict: Mapping[str, Tensor], prefix: str = "") -> LabelMapping:
    """The mapping of a head or an embedding in a state dict, from the recipe that is kept in it.

    Parameters
    ----------
    state_dict : mapping of str to Tensor
        Of a head or an embedding, or of a network with one under `prefix` ("head.").

    Raises
    ------
    ArgumentError
        There is no recipe under this prefix, or it is damaged.
    """
    try:
        state = state_dict[prefix + RECIPE]
    except KeyError as error:
        known = [k.removesuffix(RECIPE) for k in state_dict if k.endswith(RECIPE)]
        raise ArgumentError(
            f"prefix must be that of a head or an embedding in the state dict, one of {known}; "
            f"got {prefix!r}"
        ) from error
    return _read(state)[0]


def _read(state: Tensor) -> tuple[LabelMapping, tuple[int, ...] | None]:
    """The mapping and the sites that `RecipeState.get_extra_state` wrote."""
    try:
        fields = json.loads(state.cpu().numpy().tobytes())
        sites = fields["sites"]
        mapping = LabelMapping.from_config(fields["mapping"])
        return mapping, None if sites is None else mapping.check_sites(sites)
    except (ValueError, TypeError, KeyError) as error:
        raise ArgumentError(f"state_dict has a damaged recipe of its mapping: {error}") from error


def _named(sites: tuple[int, ...] | None) -> str:
    return "all" if sites is None else str(list(sites))
