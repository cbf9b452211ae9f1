"""The names of the parameters that an optimizer's state has by number, for other programs.

Only the script has both the model and the optimizer. So a set keeps the names, and who writes it in
another format (DCP goes by names) needs no script.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any


class ParameterNames:
    """Those of the tracked optimizers whose models are tracked as well."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[list[int], str]] = {}

    def of(self, parts: Mapping[str, Any]) -> dict[str, str]:
        """By optimizer, a line for each number: one text, for thousands of values take time.

        It is kept until the parameters are others.
        """
        torch = sys.modules.get("torch")
        if torch is None:
            return {}
        found = {}
        for name, part in parts.items():
            if not isinstance(part, torch.optim.Optimizer):
                continue
            mine = [id(one) for group in part.param_groups for one in group["params"]]
            known, names = self._known.get(name, ([], ""))
            if known != mine:
                by_id = dict(_named(parts, torch))
                names = "\n".join(by_id[one] for one in mine) if by_id.keys() >= {*mine} else ""
                self._known[name] = mine, names
            if names:
                found[name] = names
        return found


def _named(parts: Mapping[str, Any], torch: Any) -> Iterator[tuple[int, str]]:
    from holdfast.snapshot.parts import plain_name

    for part in parts.values():
        if isinstance(part, torch.nn.Module):
            is_wrapper = type(part).__name__ == "DistributedDataParallel"
            for name, one in (part.module if is_wrapper else part).named_parameters():
                yield id(one), plain_name(name)
