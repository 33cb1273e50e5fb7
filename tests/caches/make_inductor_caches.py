"""Let other versions of torch write a cache each, one at a time, and hold ours against it.

    python -m tests.caches.make_inductor_caches ENVIRONMENT [ENVIRONMENT ...] [--keep FOLDER]

Each environment holds a torch that runs on this machine; a small function is compiled in it on the
CPU. Then its caches are classed as that environment sees them, and as the next one does. Prints one
line for each pair, and ends with 1 if an entry of one's own is not `unknown` or one of another
torch is not `foreign`.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

from envdoctor.caches.judge import CLASSES
from envdoctor.caches.surroundings import look, read_facts
from envdoctor.caches.survey import Manner, survey_all
from envdoctor.probes.cache_places import cache_places
from envdoctor.probes.subject import Subject
from tests.caches.real import compile_into


def classes(environment: Path, cache: Path, home: Path) -> tuple[str, Counter[str]]:
    """Return the torch of an environment, and how it classes the graphs of a cache."""
    names = {"TORCHINDUCTOR_CACHE_DIR": str(cache), "HOME": str(home)}
    subject = Subject(prefix=environment, variables=names)
    facts = read_facts(subject)
    around = look(subject, facts, home=home, deep=False)
    places = [place for place in cache_places(subject, facts) if place.kind == "inductor"]
    (survey,) = survey_all(places, around, home=home, manner=Manner(deep=True))
    graphs = (one.kind for one in survey.judgements if one.entry.kind == "graph")
    return around.fingerprint.torch, Counter(graphs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("environments", type=Path, nargs="+")
    parser.add_argument("--keep", type=Path, help="leave the caches here")
    options = parser.parse_args()
    wrong = False
    with tempfile.TemporaryDirectory() as folder:
        kept = options.keep or Path(folder)
        home = Path(folder, "home")
        home.mkdir()
        for environment in options.environments:
            compile_into(kept / environment.name / "cache", str(environment / "bin/python"))
        for maker in options.environments:
            for looker in options.environments:
                torch, found = classes(looker, kept / maker.name / "cache", home)
                told = ", ".join(f"{found[name]} {name}" for name in CLASSES if found[name])
                sys.stdout.write(f"graphs of {maker.name}, seen by torch {torch}: {told}\n")
                expected = "unknown" if maker == looker else "foreign"
                wrong |= set(found) != {expected}
    sys.exit(os.EX_OK if not wrong else 1)


if __name__ == "__main__":
    main()
