"""Whole runs over a real cluster, whose right result is known beforehand."""

from __future__ import annotations

import random
import signal
import threading
import time
from dataclasses import dataclass, field, replace
from os import kill
from pathlib import Path

from fakes.world import World, graph_of, wish
from reprobuild.adapters.remote.cluster import Cluster, Member
from reprobuild.adapters.remote.service import Remote
from reprobuild.core.derivation import Derivation, FixedOutput, Hints, Input, Isolation
from reprobuild.core.digest import Digest
from reprobuild.engine.realize import Realized
from reprobuild.engine.remote import Elsewhere
from reprobuild.engine.scheduler import Limits
from support.demo import APPLETS, BUSYBOX
from support.remote import DictMemo, files_of

WIDTH, DEPTH = 3, 2


@dataclass
class Round:
    """One run from an empty store: `WIDTH` chains of `DEPTH` builds, and one that joins them."""

    home: Path
    url: str
    word: str
    seconds: float = 0.15
    fallback: bool = False
    patience: float = 90.0
    memo: DictMemo = field(default_factory=DictMemo)

    def __post_init__(self) -> None:
        self.world = World(self.home)
        self.box = self._box()

    def _box(self) -> Derivation:
        from reprobuild.core.tree import Directory, Symlink, Tree

        with BUSYBOX.open("rb") as file:
            busybox = self.world.store.add_blob(file, executable=True)
        names: dict[bytes, object] = {a.encode(): Symlink(b"busybox") for a in APPLETS}
        bin_ = Tree.of({b"busybox": busybox, **names})  # type: ignore[dict-item]
        root = Tree.of({b"bin": Directory(bin_.digest)})
        self.world.store.add_trees({bin_.digest: bin_, root.digest: root})
        return Derivation(
            "box", "fetch", fixed=FixedOutput("tree", tree=root.digest), origin={"kind": "path"}
        )

    def _step(self, name: str, *needs: Derivation) -> Derivation:
        inputs = [Input("box", self.box.digest, at="/")]
        inputs += [Input(f"i{n}", need.digest, at=f"/inputs/i{n}") for n, need in enumerate(needs)]
        first = "cat /inputs/*/file" if needs else f"echo {self.word}"
        run = f"sleep {self.seconds}; ({first}; echo {name}) > /out/out/file"
        env = {"PATH": "/bin"}
        return Derivation(
            name, "sandbox", tuple(inputs), argv=("sh", "-c", run), env=env, hints=Hints(timeout=60)
        )

    def graph(self) -> list[Derivation]:
        """Inputs first; the last one is what is asked for."""
        all_ = [self.box]
        ends = []
        for i in range(WIDTH):
            last: tuple[Derivation, ...] = ()
            for j in range(DEPTH):
                made = self._step(f"s{i}{j}", *last)
                all_.append(made)
                last = (made,)
            ends += list(last)
        return [*all_, self._step("top", *ends)]

    def right(self) -> bytes:
        """What the last one has to hold."""
        parts = [
            f"{self.word}\n" + "".join(f"s{i}{j}\n" for j in range(DEPTH)) for i in range(WIDTH)
        ]
        return ("".join(parts) + "top\n").encode()

    def run(self) -> Realized:
        """Runs it, and looks at what came out."""
        world, all_ = self.world, self.graph()
        remote = Remote(world.store, self.memo, {}, world.events, world.cancel)
        executor = remote.executor(self.url, fallback=self.fallback)
        executor._patience = self.patience
        realizer = world.realizer()
        realizer.elsewhere = Elsewhere(
            executor, world.events, world.home / "logs", world.cancel, fallback=self.fallback
        )
        try:
            wishes = replace(
                wish(), isolation=Isolation.REMOTE, limits=Limits(jobs=2, cores=2, memory=2**33)
            )
            done = realizer.realize(graph_of(all_), [all_[-1].digest], wishes)
        finally:
            executor.close()
        made = files_of(world.store, self.tree(done, all_[-1].digest))
        assert made == {"file": self.right()}
        return done

    @staticmethod
    def tree(done: Realized, drv: Digest) -> Digest:
        return done.chosen[drv].outputs["out"]


@dataclass
class Killer:
    """Kills a member at a moment, and starts it again after a pause."""

    cluster: Cluster
    name: str
    after: float
    pause: float
    died: list[Member] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        time.sleep(self.after)
        member = next(m for m in self.cluster.members() if m.name == self.name)
        kill(member.pid, signal.SIGKILL)
        self.died.append(member)
        time.sleep(self.pause)
        self.cluster.restart(self.name)


def moments(count: int, span: float, seed: int) -> list[float]:
    """Random moments of a run that takes `span` seconds, the same for one seed."""
    chance = random.Random(seed)
    return [chance.uniform(0, span) for _ in range(count)]
