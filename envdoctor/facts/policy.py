"""What an environment is wanted for, as a fact that checks read."""

from __future__ import annotations

from envdoctor.facts.fact import Fact
from envdoctor.value import keyword_value


@keyword_value
class PolicyFact(Fact):
    """What the environment is wanted for, from the command line and the profile.

    Args:
        profile: Name of the profile; None if none was named.
        torch_version: Version of torch that the profile wants, without local tag.
        variant: `cpu` or `cu128` as the profile writes it; None if none was named.
        arch: GPU architectures the build must hold, such as `sm_90`.
        forbid: Globs over normalised distribution names that must not be installed.
        packages: Normalised names of the packages that the profile asks for besides torch.
        driver_min: Lowest driver version the profile accepts.
        expect_gpu: True if a GPU must be there, False if none is wanted, None if unsaid.
        pip_install: Command that reinstalls packages into it; `NAME==VERSION` follows.
        pip_uninstall: Command that uninstalls packages from it; names follow.
    """

    profile: str | None = None
    torch_version: str | None = None
    variant: str | None = None
    arch: tuple[str, ...] = ()
    forbid: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    driver_min: str | None = None
    expect_gpu: bool | None = None
    pip_install: str = "pip install --force-reinstall --no-deps"
    pip_uninstall: str = "pip uninstall -y"

    @property
    def pip_add(self) -> str:
        """Command that installs packages with what they require, without force."""
        options = {"--force-reinstall", "--no-deps", "--reinstall"}
        return " ".join(word for word in self.pip_install.split() if word not in options)


@keyword_value
class RunFact(Fact):
    """A run file of the trainer that is to run in the environment; empty if none was named.

    Args:
        path: The file; empty if none was named.
        mode: Its layout: `inline`, `processes` or `threads`.
        device: `auto`, `cpu` or `cuda`.
        attention: `auto`, `flex` or `dense`.
        num_rows: Conversations in a step's forward pass.
        num_heads: Query heads of the target and so of the drafter; None if they are not known here.
        num_queries: Draft tokens of a row.
        num_keys: Context and draft tokens of a row at the greatest length.
    """

    path: str = ""
    mode: str = "inline"
    device: str = "auto"
    attention: str = "auto"
    num_rows: int = 1
    num_heads: int | None = None
    num_queries: int = 0
    num_keys: int = 0


@keyword_value
class Suppression:
    """A problem that is known and shall not count.

    Args:
        check: Id of the check that reports it.
        reason: Why it does not count, for whoever reads the report.
        culprit: Glob over the culprits that are meant.
        origin: Where it was asked for, such as `--ignore` or `profile cu128`.
    """

    check: str
    reason: str
    culprit: str = "*"
    origin: str = "--ignore"


@keyword_value
class SuppressionsFact(Fact):
    """The suppressions of a run; known only after all other checks.

    Args:
        given: All of them.
        without_effect: Those whose check looked and reported nothing that they would suppress.
    """

    given: tuple[Suppression, ...]
    without_effect: tuple[Suppression, ...] = ()
