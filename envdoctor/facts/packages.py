"""Readings of a Python environment: interpreter and distributions."""

from __future__ import annotations

from pathlib import PurePath

from envdoctor.facts.fact import Fact
from envdoctor.value import keyword_value


@keyword_value
class InterpreterFact(Fact):
    """A Python environment, found by reading files, not by running it.

    Args:
        prefix: The environment's folder.
        python: Its interpreter; None if `bin/python` is missing or a dead link.
        version: Major, minor (and micro where known) version, such as `3.11` or `3.11.7`.
        is_venv: True if `pyvenv.cfg` makes it a virtual environment.
        site_packages: Existing folders of installed packages, in import order.
        user_site: The one of them that holds what the user installed for all environments; None if
            it is not there or not used.
    """

    prefix: str
    python: str | None
    version: str
    is_venv: bool
    site_packages: tuple[str, ...]
    user_site: str | None = None


@keyword_value
class Distribution:
    """One installed distribution, from its `.dist-info` folder.

    Args:
        name: Normalised name (PEP 503).
        version: From METADATA; empty if METADATA has none.
        path: The `.dist-info` folder.
        requires: Requires-Dist lines as written.
        installer: From INSTALLER; empty if there is none.
        has_record: True if a RECORD file is there.
        installed_at: When that was written, in seconds since the epoch; 0 if it is not there.
        has_metadata: True if a METADATA file is there.
        is_requested: True if somebody asked for it by name, rather than another package.
        tags: Tags of the wheel it came from, such as `cp311-cp311-manylinux_2_28_x86_64`.
        code_version: What the package's own code says about its version; empty if nobody looked,
            which is only done where one folder holds several distributions of a name.
        editable: The source folder of an editable installation; empty if it is none.
        is_editable_gone: True if that folder is not there.
    """

    name: str
    version: str
    path: str
    requires: tuple[str, ...] = ()
    installer: str = ""
    has_record: bool = True
    installed_at: int = 0
    has_metadata: bool = True
    is_requested: bool = False
    tags: tuple[str, ...] = ()
    code_version: str = ""
    editable: str = ""
    is_editable_gone: bool = False

    @property
    def is_of_the_code(self) -> bool:
        """True if the package's own code states this version; a local tag does not count."""
        return self.code_version.partition("+")[0] == self.version.partition("+")[0]


@keyword_value
class DistributionsFact(Fact):
    """All that is installed.

    Args:
        distributions: In import order, so the first of a name is the one Python sees.
        leftovers: Paths of `~name` folders that an interrupted pip left.
        modules: Top-level module names and their paths, without those of dist-info folders.
        egg_infos: Normalised names of packages that have an `.egg-info` in place of a `.dist-info`.
    """

    distributions: tuple[Distribution, ...]
    leftovers: tuple[str, ...] = ()
    modules: tuple[tuple[str, str], ...] = ()
    egg_infos: tuple[str, ...] = ()

    def find(self, name: str) -> Distribution | None:
        """Return the distribution that is installed under a normalised name.

        Of several in the folder that Python looks into first, a whole one counts before one that
        lacks METADATA or RECORD, one of the version that the code states before another, and then
        the one that was installed last.
        """
        found = [dist for dist in self.distributions if dist.name == name]
        if len(found) < 2:  # noqa: PLR2004  nothing to choose between
            return next(iter(found), None)
        first = PurePath(found[0].path).parent
        return max(
            (dist for dist in found if PurePath(dist.path).parent == first),
            key=lambda dist: (
                dist.has_metadata and dist.has_record,
                dist.is_of_the_code,
                dist.installed_at,
                dist.path,
            ),
        )

    def version_of(self, name: str) -> str:
        """Return the version of the distribution that Python sees; empty if there is none."""
        dist = self.find(name)
        return dist.version if dist else ""
