"""`envdoctor profiles`."""

from __future__ import annotations

import typer


def profiles() -> None:
    """List the bundled profiles with what each is for."""
    from envdoctor.profile import known_names, load_profile

    for name in known_names():
        profile = load_profile(name)
        torch = f"torch {profile.torch.version} {profile.torch.variant}"
        typer.echo(f"{name:<8} {torch:<22} {profile.description}")
