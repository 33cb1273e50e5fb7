"""Which C++ runtime is at fault where torch itself loads none: facts in, verdict out."""

from __future__ import annotations

import pytest

from envdoctor.facts import DistributionsFact, LoaderFact, Unmet, VariablesFact
from envdoctor.verdict import Problem
from tests.checks.test_agreement import outcomes

OLD = "/opt/old/lib/libstdc++.so.6"
CONDA = "/opt/conda/lib/libstdc++.so.6"


@pytest.mark.parametrize(
    ("library_path", "lost", "culprit", "kind"),
    [
        pytest.param("/a:/opt/old/lib/", (), "LD_LIBRARY_PATH", "unset-env", id="on-the-path"),
        pytest.param("/a", (), OLD, "install-system-package", id="elsewhere"),
        pytest.param("", (CONDA,), CONDA, "reinstall-package", id="conda-lost-its-own"),
    ],
)
def test_runtime_that_only_an_extension_loads(
    library_path: str, lost: tuple[str, ...], culprit: str, kind: str
) -> None:
    lacking = Unmet(
        path="/env/ext.so",
        distribution="ext",
        name="libstdc++.so.6",
        provider=OLD,
        versions=("GLIBCXX_3.4.30",),
    )
    loader = LoaderFact(unmet=(lacking,), lost_libstdcxx=lost)
    variables = VariablesFact(values=(("LD_LIBRARY_PATH", library_path),))
    nothing = DistributionsFact(distributions=())
    (found,) = outcomes("libstdcxx-too-old", nothing, loader, variables)
    assert isinstance(found, Problem)
    assert (found.culprit, found.remedy.kind) == (culprit, kind)
