"""Hooks into functions that a framework keeps private, and calls itself.

Such a function may look otherwise in the framework's next version. So a hook passes on whatever it
is given and gives back whatever it gets, and when it fails itself, the run goes on without what the
hook was for.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from holdfast.session.say import say


class Guard:
    """Calls a hook until it fails: that is said once, and the hook is not called again."""

    def __init__(self, hook: Callable[..., Any], loss: str) -> None:
        """`loss`: what there is no longer once the hook has failed, as a sentence."""
        self._hook: Callable[..., Any] | None = hook
        self._loss = loss

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the hook gives; None once it has failed."""
        if self._hook is None:
            return None
        try:
            return self._hook(*args, **kwargs)
        except Exception as error:
            self._hook = None
            say(f"{self._loss}: a hook does not fit this version of the framework ({error!r})")
            return None


def hook_into(
    owner: Any,
    name: str,
    loss: str,
    *,
    before: Callable[..., Any] = lambda *_, **__: None,
    after: Callable[..., Any] = lambda *_, **__: None,
) -> None:
    """Have the function `owner.name` call `before` and `after` from now on.

    `before` gets the arguments; what it gives is the result, unless that is None. `after` gets the
    function's result and the arguments; what it gives replaces the result, unless that is None.
    """
    original = getattr(owner, name)
    before, after = Guard(before, loss), Guard(after, loss)

    @functools.wraps(original)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        instead = before(*args, **kwargs)
        if instead is not None:
            return instead
        result = original(*args, **kwargs)
        changed = after(result, *args, **kwargs)
        return result if changed is None else changed

    setattr(owner, name, hooked)


def arguments(function: Callable[..., Any], *needed: str) -> Callable[..., dict[str, Any]]:
    """What gives the arguments of a call of `function` by name, however they were passed.

    Raises AttributeError at once for a function that does not take those that are needed.
    """
    import inspect

    signature = inspect.signature(function)
    if missing := [name for name in needed if name not in signature.parameters]:
        raise AttributeError(f"{function.__name__} takes no {' and no '.join(missing)}")

    def by_name(*args: Any, **kwargs: Any) -> dict[str, Any]:
        return dict(signature.bind(*args, **kwargs).arguments)

    return by_name
