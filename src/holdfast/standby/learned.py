"""What to import ahead: the names that an attempt had imported by its first completed step.

The session writes them (`holdfast.session.imports`); beside them stands the never-list, which
standbys write: what could not be imported ahead, and why.
"""

from __future__ import annotations

import importlib.machinery
import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FORMAT = 1
MAX_BYTES = 16 << 20
# `skip`: its import failed. `shun`: whoever imports it is shunned too.
SKIP, SHUN = "skip", "shun"
_NEVER = frozenset(["__main__", "__mp_main__", "sitecustomize", "usercustomize"])


class Libraries:
    """Where code lives that is not the user's own: the standard library, site-packages, and we."""

    def __init__(self) -> None:
        site = sys.modules["site"]
        folders = [*site.getsitepackages(), os.path.dirname(os.path.abspath(os.__file__))]
        if site.ENABLE_USER_SITE:
            folders.append(site.getusersitepackages())
        folders += [path for path in sys.path if _is_site_packages(path)]
        ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        self._prefixes = tuple({os.path.join(path, "") for path in [*folders, ours]})

    def hold(self, file: str) -> bool:
        """Whether this file is a library's."""
        return file.startswith(self._prefixes)

    def hold_folder(self, folder: str) -> bool:
        """Whether this entry of sys.path is a library's."""
        inside = os.path.join(folder, "")
        return inside.startswith(self._prefixes) or folder.endswith(".zip")


def _is_site_packages(path: str) -> bool:
    return os.path.basename(path) in ("site-packages", "dist-packages")


def read(path: str, libraries: Libraries) -> list[str]:
    """The names to import, in order. Raises OSError, ValueError for a file that is not one."""
    with open(path, "rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError(f"{path} has more than {MAX_BYTES} bytes")
    fields = json.loads(data)
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        raise ValueError(f"{path} is not a list of imports that we can read")
    if "guessed" in fields:  # by their names alone, before anything was learned
        fields["modules"] = [(name, _file_of(name)) for name in map(str, fields["guessed"])]
    return list(_chosen(fields["modules"], libraries))


def _file_of(name: str) -> str | None:
    """Where the package that this is of would be imported from; nothing is."""
    spec = importlib.machinery.PathFinder.find_spec(name.partition(".")[0])
    return None if spec is None else spec.origin


def _chosen(modules: Iterable[tuple[str, str | None]], libraries: Libraries) -> Iterator[str]:
    for name, file in modules:
        if name in _NEVER or name.startswith("holdfast_standby"):
            continue
        if name in sys.builtin_module_names if file is None else libraries.hold(file):
            yield name


class NeverList:
    """The never-list: {name: [skip or shun, why]}."""

    def __init__(self, imports: str) -> None:
        self._path = imports + ".never"
        self.entries: dict[str, list[str]] = {}
        try:
            with open(self._path, "rb") as file:
                entries = json.loads(file.read(MAX_BYTES))
            self.entries = {
                str(name): [str(kind), str(why)] for name, (kind, why) in entries.items()
            }
        except FileNotFoundError:
            pass
        except (OSError, ValueError, TypeError, AttributeError) as error:
            print(f"holdfast: {self._path} cannot be read: {error}", file=sys.stderr)

    def shuns(self, name: str) -> bool:
        """Whether nobody may import this."""
        return self.entries.get(name, [""])[0] == SHUN

    def add(self, name: str, kind: str, why: str) -> None:
        """For this standby and all that follow. Raises OSError."""
        self.entries[name] = [kind, why]
        draft = f"{self._path}.{os.getpid()}"
        with open(draft, "w", encoding="utf-8") as file:
            file.write(json.dumps(self.entries))
        os.replace(draft, self._path)

    def reasons(self) -> dict[str, str]:
        """Why, by name."""
        return {name: why for name, (_, why) in self.entries.items()}
