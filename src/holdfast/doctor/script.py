"""A look at a script's source, without running it: what it does with SIGTERM, and with SystemExit.

Only what stands in the file is seen: what it imports may do the same.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from holdfast.doctor.facts import BadHabit, ScriptHabit

BOUNDARIES = ("done", "poll", "steps")  # methods of a run that raise hf.Stop
WORDS_MAX_CHARS = 60
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def look(source: str | bytes) -> tuple[ScriptHabit, ...]:
    """What a script's source shows, by line; raises SyntaxError or ValueError if it is no Python.

    Bytes are read in the encoding that they name, as Python does.
    """
    script = _Script(ast.parse(source))
    found = [*script.handlers(), *script.exits(), *script.swallowed()]
    return tuple(sorted(found, key=lambda one: (one.line, one.habit)))


class _Script:
    def __init__(self, tree: ast.Module) -> None:
        self.nodes = list(ast.walk(tree))
        self.parents = {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}
        self.aliases = dict(self._aliases())
        self.functions = {
            node.name: node
            for node in self.nodes
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        self.handled: list[Function] = []

    # --- names ------------------------------------------------------------------------------

    def _aliases(self) -> Iterator[tuple[str, str]]:
        """What names of the module stand for: `s` of `import signal as s`."""
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for one in node.names:
                    if one.asname:
                        yield one.asname, one.name
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for one in node.names:
                    yield one.asname or one.name, f"{node.module}.{one.name}"

    def name(self, node: ast.AST) -> str:
        """A dotted name with its aliases resolved: "signal.SIGTERM"; "" for anything else."""
        if isinstance(node, ast.Name):
            return self.aliases.get(node.id, node.id)
        if isinstance(node, ast.Attribute) and (base := self.name(node.value)):
            return f"{base}.{node.attr}"
        return ""

    def calls(self, name: str) -> Iterator[ast.Call]:
        """All calls of that function."""
        for node in self.nodes:
            if isinstance(node, ast.Call) and self.name(node.func) == name:
                yield node

    def uses(self, name: str) -> bool:
        """Whether it is called anywhere."""
        return next(self.calls(name), None) is not None

    # --- SIGTERM ----------------------------------------------------------------------------

    def handlers(self) -> Iterator[ScriptHabit]:
        """What is done about SIGTERM."""
        own = 0
        for call in self.calls("signal.signal"):
            if len(call.args) != 2 or not self._is_sigterm(call.args[0]):
                continue
            what = self.name(call.args[1])
            if what == "signal.SIG_IGN":
                yield self._habit(call, BadHabit.IGNORES_SIGTERM)
            elif what == "signal.SIG_DFL":
                yield self._habit(call, BadHabit.DIES_OF_SIGTERM)
            else:
                own += 1
                if self._forgets(call, what):
                    yield self._habit(call, BadHabit.HANDLER_REPLACES)
                yield from self._within(call.args[1])
        has_holdfast = any(
            isinstance(node, ast.Import) and any(one.name == "holdfast" for one in node.names)
            for node in self.nodes
        )
        if own and not has_holdfast:
            for call in self.calls("jax.distributed.initialize"):
                yield self._habit(call, BadHabit.JAX_REPLACES)

    def _is_sigterm(self, node: ast.expr) -> bool:
        """SIGTERM itself, or the variable of a loop over signals with it among them."""
        if self.name(node) == "signal.SIGTERM":
            return True
        if isinstance(node, ast.Constant) and node.value == 15:
            return True
        if not isinstance(node, ast.Name):
            return False
        return any(
            isinstance(loop, ast.For)
            and isinstance(loop.target, ast.Name)
            and loop.target.id == node.id
            and any(self.name(one) == "signal.SIGTERM" for one in ast.walk(loop.iter))
            for loop in self.nodes
        )

    def _forgets(self, call: ast.Call, what: str) -> bool:
        """Nobody keeps the old handler, and Holdfast does not come after it, which chains.

        A name that is no function of the script's may be an old handler that is put back.
        """
        if any(call.lineno < start.lineno for start in self.calls("holdfast.start")):
            return False
        is_kept = not isinstance(self.parents.get(call), ast.Expr)
        is_own = isinstance(call.args[1], ast.Lambda) or what.split(".")[-1] in self.functions
        return is_own and not is_kept and not self.uses("signal.getsignal")

    def _within(self, node: ast.expr) -> Iterator[ScriptHabit]:
        """How a handler of the script's own leaves."""
        handler: Function | None = node if isinstance(node, ast.Lambda) else None
        handler = handler or self.functions.get(self.name(node).split(".")[-1])
        if handler is None or handler in self.handled:
            return
        self.handled.append(handler)
        for inner in ast.walk(handler):
            if isinstance(inner, ast.Raise):
                yield self._habit(inner, BadHabit.HANDLER_RAISES)
            elif isinstance(inner, ast.Call):
                name = self.name(inner.func)
                if name == "os._exit":
                    yield self._habit(inner, BadHabit.HANDLER_EXITS)
                elif name in ("sys.exit", "exit", "quit"):
                    yield self._habit(inner, BadHabit.HANDLER_RAISES)

    # --- leaving ----------------------------------------------------------------------------

    def exits(self) -> Iterator[ScriptHabit]:
        """os._exit outside of signal handlers."""
        handled = {inner for one in self.handled for inner in ast.walk(one)}
        for call in self.calls("os._exit"):
            if call not in handled:
                yield self._habit(call, BadHabit.EXITS_HARD)

    def swallowed(self) -> Iterator[ScriptHabit]:
        """Handlers of exceptions that end SystemExit, and hf.Stop with it."""
        for node in self.nodes:
            if not isinstance(node, ast.Try):
                continue
            for handler in node.handlers:
                if self._ends_exit(handler):
                    has_boundary = any(self._is_boundary(one) for one in _walk_all(node.body))
                    habit = BadHabit.SWALLOWS_STOP if has_boundary else BadHabit.SWALLOWS_EXIT
                    yield self._habit(handler, habit)
                    break
                if self._catches_exit(handler):
                    break  # it is raised again: those after it never see it

    def _ends_exit(self, handler: ast.ExceptHandler) -> bool:
        return self._catches_exit(handler) and not any(
            isinstance(one, ast.Raise) or self._is_exit(one) for one in _walk_all(handler.body)
        )

    def _is_exit(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and self.name(node.func) in ("sys.exit", "os._exit")

    def _catches_exit(self, handler: ast.ExceptHandler) -> bool:
        kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        caught = ("SystemExit", "BaseException", "holdfast.Stop")
        return any(one is None or self.name(one) in caught for one in kinds)

    def _is_boundary(self, node: ast.AST) -> bool:
        """A call such as `run.done(step, state)`."""
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            return False
        return node.func.attr in BOUNDARIES and self.name(node.func).split(".")[0] in self._runs()

    def _runs(self) -> list[str]:
        """Names that hold a run: what `holdfast.start()` was assigned to; `run` by custom."""
        found = ["run"]
        for call in self.calls("holdfast.start"):
            parent = self.parents.get(call)
            if isinstance(parent, ast.Assign):
                found += [one.id for one in parent.targets if isinstance(one, ast.Name)]
        return found

    def _habit(self, node: ast.expr | ast.stmt | ast.ExceptHandler, habit: BadHabit) -> ScriptHabit:
        words = ast.unparse(node).split("\n")[0]
        if len(words) > WORDS_MAX_CHARS:
            words = f"{words[:WORDS_MAX_CHARS]}…"
        return ScriptHabit(node.lineno, habit, words)


def _walk_all(body: list[ast.stmt]) -> Iterator[ast.AST]:
    for statement in body:
        yield from ast.walk(statement)
