"""Compile caches in every state, made of recorded and written files, and what is held against them.

Triton's entries are real (`make_triton_entries.py`); Inductor's have the real layout and marks.
"""

from __future__ import annotations

import os
import pickle
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from envdoctor.caches.judge import CLASSES
from envdoctor.caches.surroundings import look, read_facts
from envdoctor.caches.survey import Manner, survey_all
from envdoctor.caches.vouch import stamp_all
from envdoctor.facts import FactSet, Gpu, NvidiaFact
from envdoctor.probes.build_keys import compact
from envdoctor.probes.cache_places import cache_places
from envdoctor.probes.subject import Subject
from tests.environments import Environment, elf, make_cuda_environment

if TYPE_CHECKING:
    import random

    from envdoctor.caches.judge import EntryClass, Surroundings
    from envdoctor.caches.survey import Survey

TRITON_ENTRIES = Path(__file__).parents[1] / "facts/triton-cache"
FLEX_KERNEL = "NRU5YUEJKZGHNSQ2Y25GSNWF7RULFFHYK7YIOI4XOFWGDAZIOMJA"
"""Of flex_attention's backward pass: torch 2.11.0+cu130, Triton 3.6.0, one NVIDIA H200, 2026-11-30;
made by `tests.benchmarks.cache_warm`, paths replaced by others of the same length."""
H200 = NvidiaFact(
    num_devices=1,
    driver="580.95.05",
    gpus=(Gpu(index=0, name="NVIDIA H200", capability="9.0", memory_bytes=10**11),),
)
NO_SYSTEM = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


def key(letter: str, number: int) -> str:
    """A key as torch makes them: a letter and 51 characters."""
    return letter + compact(f"{letter}{number}".encode())


def graph_pickle(number: int, *, mark: str, system: str = NO_SYSTEM, device: str = "") -> bytes:
    """A pickle with the lines that torch writes into its own."""
    lines = [f"[{mark}] torch_version: ", f"[{mark}] system_info[hash]: {system}"]
    if device:
        lines.append(f"[{mark}] system_info[device]: {{'name': '{device}'}}")
    return pickle.dumps({"lines": lines, "graph": f"graph {number} " * 200}, protocol=4)


def write_graph(cache: Path, number: int, content: bytes, *, joint: bool = False) -> Path:
    """Write a pickle under the name that its content has."""
    name = key("a" if joint else "f", number)
    folder = cache / "aotautograd" / name if joint else cache / "fxgraph" / name[1:3] / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / compact(content)).write_bytes(content)
    return folder / compact(content)


def write_inductor(cache: Path, *, mark: str, number: int = 3) -> None:
    """Write what a few compiled functions leave."""
    for index in range(number):
        write_graph(cache, index, graph_pickle(index, mark=mark))
        write_graph(cache, index, graph_pickle(index + 100, mark=mark), joint=True)
        name = key("c", index)
        folder = cache / name[1:3]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.py").write_text(f"# wrapper\nNUMBER = {index}\n" * 40)
        (folder / f"{key('c', index + 50)}.cpp").write_text(f"int number() {{ return {index}; }}\n")
        (folder / f"{key('c', index + 50)}.so").write_bytes(elf(f"kernel{index}.so"))
        (folder / f"{name}.best_config").write_text('{"XBLOCK": 128, "configs_hash": "x"}')
    (cache / "locks").mkdir(exist_ok=True)
    (cache / "locks" / f"{key('c', 50)}.lock").touch()
    (cache / "cache").mkdir(exist_ok=True)
    (cache / "cache" / NO_SYSTEM).write_text('{"system": {"hash": "x"}, "cache": {}}')


def write_triton(cache: Path, *archs: int) -> None:
    """Copy recorded entries, with the cache's own path in their groups."""
    for arch in archs:
        _copy_entry(cache, triton_key(arch))


def write_flex_kernel(cache: Path) -> Path:
    """Copy a kernel that a training on an H200 compiled, and return its folder."""
    return _copy_entry(cache, FLEX_KERNEL)


def _copy_entry(cache: Path, name: str) -> Path:
    shutil.copytree(TRITON_ENTRIES / name, cache / name)
    for path in (cache / name).glob("*.json"):
        path.write_text(path.read_text().replace("{root}", str(cache)))
    return cache / name


def triton_key(arch: int) -> str:
    """The recorded entry for an architecture."""
    wanted = f'"arch": {arch},'
    (found,) = [path for path in TRITON_ENTRIES.glob("*/scale.json") if wanted in path.read_text()]
    return found.parent.name


@dataclass
class Bench:
    """An environment with a torch for CUDA, a home, and caches that its variables name."""

    folder: Path
    nvidia: NvidiaFact = H200
    variables: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.environment: Environment = make_cuda_environment(self.folder / "env")
        (self.folder / "user").mkdir(mode=0o700)

    @property
    def inductor(self) -> Path:
        return self.folder / "user/inductor"

    @property
    def triton(self) -> Path:
        return self.folder / "user/triton"

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def subject(self) -> Subject:
        names = {
            "HOME": str(self.folder / "user"),
            "TMPDIR": str(self.folder / "user"),
            "USER": "me",
            "TORCHINDUCTOR_CACHE_DIR": str(self.inductor),
            "TRITON_CACHE_DIR": str(self.triton),
        }
        return Subject(prefix=self.environment.prefix, variables={**names, **self.variables})

    @property
    def facts(self) -> FactSet:
        return read_facts(self.subject, FactSet([self.nvidia]))

    def around(self, *, deep: bool = False) -> Surroundings:
        return look(self.subject, self.facts, home=self.home, deep=deep)

    def survey(self, *, deep: bool = False, every: bool = False) -> list[Survey]:
        places = cache_places(self.subject, self.facts)
        manner = Manner(deep=deep, every=every)
        return survey_all(places, self.around(deep=deep), home=self.home, manner=manner)

    def stamp(self) -> int:
        fingerprint = self.around().fingerprint
        return stamp_all(self.survey(deep=True), fingerprint, home=self.home, by="verify")

    def classes(self, *, deep: bool = False) -> dict[str, EntryClass]:
        """Class by path, of every entry of every cache."""
        return {
            f"{survey.place.kind}/{one.entry.path}": one.kind
            for survey in self.survey(deep=deep)
            for one in survey.judgements
        }

    def counts(self, *, deep: bool = False) -> dict[str, int]:
        """Number of entries by class, those classes that occur."""
        found = list(self.classes(deep=deep).values())
        return {name: found.count(name) for name in CLASSES if name in found}


def warmed(folder: Path) -> Bench:
    """A bench with full, stamped caches."""
    bench = Bench(folder)
    write_inductor(bench.inductor, mark=bench.around().mark)
    write_triton(bench.triton, 90)
    bench.stamp()
    return bench


def files_of(*caches: Path) -> list[Path]:
    """Every file of caches that counts: locks are left out."""
    return sorted(
        Path(parent, name)
        for cache in caches
        for parent, _, names in os.walk(cache)
        for name in names
        if not name.endswith(".lock")
    )


def damage_at_random(path: Path, chance: random.Random) -> str:
    """Damage one file in one way that leaves something wrong; return the way."""
    ways = ["flip", "cut", "extend", "rename", "remove"]
    ways += ["owner"] if os.getuid() == 0 else []
    ways += ["arch"] if path.suffix == ".so" else []
    way = chance.choice(ways)
    content = path.read_bytes()
    changed = bytearray(content)
    match way:
        case "flip":
            changed[chance.randrange(len(content))] ^= chance.randrange(1, 256)
        case "cut":
            del changed[chance.randrange(len(content)) :]
        case "extend":
            changed += b"more"
        case "arch":
            changed[18:20] = b"\xb7\x00"
        case _:
            _displace(path, way, chance)
            return way
    path.write_bytes(changed)
    return way


def _displace(path: Path, way: str, chance: random.Random) -> None:
    if way == "rename":
        path.rename(path.with_name(f"{chance.randrange(10**9)}{path.suffix}"))
    elif way == "remove":
        path.unlink()
    else:
        os.chown(path, 4321, 4321)
