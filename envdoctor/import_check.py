"""Import an environment's modules and load its libraries, apart from this process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from envdoctor.verify import UnfitEnvironmentError, listed

if TYPE_CHECKING:
    from pathlib import Path

    from envdoctor.profile import Profile
    from envdoctor.workshop import Workshop

_IMPORTS = """
import ctypes, importlib, json, os, sys
wanted, env = json.loads(sys.argv[1]), os.path.realpath(sys.argv[2]) + os.sep
names, failed = wanted["imports"], {}
for name in names:
    try:
        importlib.import_module(name)
    except BaseException as error:
        failed[name] = f"{type(error).__name__}: {error}"
torch = sys.modules.get("torch")
if torch is not None and hasattr(torch, "nn"):
    try:
        torch.nn.Linear(2, 2)(torch.ones(1, 2)).sum().backward()
    except Exception as error:
        failed["torch, one step on the CPU"] = f"{type(error).__name__}: {error}"
for library in wanted["libraries"]:
    try:
        ctypes.CDLL(library)
    except OSError as error:
        failed[library] = str(error)
files = {name: getattr(sys.modules.get(name), "__file__", None) for name in names}
outside = [f"{n} ({f})" for n, f in files.items() if f and not os.path.realpath(f).startswith(env)]
with open("/proc/self/maps", errors="surrogateescape") as maps:
    loaded = {line.split(None, 5)[5].strip() for line in maps if line.count("/")}
foreign = sorted(
    f"{os.path.basename(path)} ({path})"
    for path in loaded
    if os.path.basename(path).startswith(tuple(wanted["inside"])) and not path.startswith(env)
)
print(json.dumps({"failed": failed, "outside": outside, "foreign": foreign}))
"""


def require_imports(env: Path, profile: Profile, shop: Workshop) -> None:
    """Import the profile's modules in the environment and load its libraries.

    Raises:
        UnfitEnvironmentError: One does not import or load, takes too long, or comes from outside.
    """
    # -I leaves out the variables and folders of the user, PYTHONDONTWRITEBYTECODE among them: -B.
    argv = [str(env / "bin/python"), "-I", "-B", "-c", _IMPORTS]
    wanted = {
        "imports": profile.check.imports,
        "libraries": profile.libraries.require,
        "inside": profile.libraries.forbid_outside_env,
    }
    argv += [json.dumps(wanted), str(env)]
    try:
        done = shop.run(argv, timeout=profile.check.timeout_seconds)
    except TimeoutError as error:
        raise UnfitEnvironmentError(f"imports: {error}", reference="imports-too-slow") from error
    result = _answer(done.stdout)
    failed, outside = result.get("failed", {}), result.get("outside", [])
    if done.returncode != 0 or not result:
        ended = f"ended with {done.returncode}: {_last_line(done.stderr)}"
        raise UnfitEnvironmentError(
            f"the process of the imports {ended}", reference="imports-crashed"
        )
    if failed:
        lines = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
        raise UnfitEnvironmentError(f"does not import: {lines}", reference="imports-failed")
    if outside:
        raise UnfitEnvironmentError(
            f"imported from outside the environment: {listed(outside)}",
            reference="imports-foreign",
        )
    if foreign := result.get("foreign", []):
        raise UnfitEnvironmentError(
            f"not loaded from the environment: {listed(foreign)}",
            reference="libraries-foreign",
            hint="a package, an RPATH or the loader's configuration leads there",
        )


def _answer(stdout: str) -> dict[str, Any]:
    """Return what the last line says: an imported module may print as well."""
    lines = stdout.strip().splitlines()
    try:
        answer: dict[str, Any] = json.loads(lines[-1]) if lines else {}
    except ValueError:
        return {}
    return answer


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it said nothing"])[-1]
