"""realize: make outputs exist."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reprobuild.cli.answer import remembered, text
from reprobuild.cli.options import complete_outputs, in_flake, machine_memory, parse_memory
from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.app import App
    from reprobuild.cli.evaluation import Target
    from reprobuild.core.derivation import Isolation
    from reprobuild.core.graph import Graph
    from reprobuild.engine.realize import Realized, Wishes
    from reprobuild.engine.remote import Elsewhere
    from reprobuild.engine.remote_cache import EntryCache
    from reprobuild.engine.substitute import Substitution


class _Realize(click.Command):
    """`--check` takes its value after `=` alone, so that an installable may follow it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        words = ["--check=named" if word == "--check" else word for word in args[:end]]
        return super().parse_args(ctx, words + args[end:])


@click.command(cls=_Realize)
@click.argument("installables", nargs=-1, shell_complete=complete_outputs)
@click.option("--dry-run", is_flag=True, help="Say what would be done, and why.")
@click.option(
    "--check",
    default=None,
    metavar="[=closure]",
    help="Build again what is named (or its whole closure) and compare.",
)
@click.option("--from-source", is_flag=True, help="Use no record and no substituter.")
@click.option(
    "--substituter", multiple=True, metavar="URL", help="A binary cache to ask, in this order."
)
@click.option("--remote", metavar="URL", help="Build on servers: grpc[s]://HOST:PORT[,…].")
@click.option(
    "--remote-jobs",
    type=click.IntRange(1),
    help="Builds at once on each (default: as many as it takes).",
)
@click.option("--no-local", is_flag=True, help="Run no build here, whatever becomes of --remote.")
@click.option("--remote-cache", metavar="URL", help="Results that are shared on a server.")
@click.option(
    "--remote-cache-mode",
    type=click.Choice(["read", "read-write"]),
    default="read",
    help="Whether what is made here is left there, signed with the key `default`.",
)
@click.option(
    "--remote-cache-trust",
    type=click.Choice(["keys", "own"]),
    default="keys",
    help="Whose results count: of every key that is trusted here, or of one's own alone.",
)
@click.option("--jobs", "-j", type=click.IntRange(1), help="Builds at once (default: cores).")
@click.option("--cores", type=click.IntRange(1), help="Cores to use (default: all).")
@click.option("--memory", metavar="SIZE", help="Memory to use (default: 85 % of the machine's).")
@click.option(
    "--isolation",
    type=click.Choice(["full", "remote", "host-toolchain", "none"]),
    help="The grade to build with (default: what the release requires).",
)
@click.option("--keep-going", is_flag=True, help="After a failure, go on with what can be made.")
@click.option("--keep-failed", is_flag=True, help="Keep the directory of a failed build.")
@click.option("--trace", metavar="FILE", help="A timeline of the run, in Chrome's trace format.")
@click.option("--metrics", metavar="FILE", help="Figures of the run, in OpenMetrics' format.")
@click.option("--out-link", metavar="PATH", help="A link to the result.")
@click.option("--override", multiple=True, metavar="INPUT=path:DIR", help="Try a local checkout.")
@click.pass_obj
def realize(app: App, /, installables: tuple[str, ...], **options: Any) -> None:
    """Make outputs exist: reuse, fetch, integrate, build."""
    app, names = in_flake(app, installables)
    if options["out_link"] is not None:
        _check_link(app, options["out_link"])
    app.watch(*(Path(options[o]) if options[o] else None for o in ("trace", "metrics")))
    plain = not any(options[o] for o in ("dry_run", "check", "from_source", "out_link", "override"))
    grade = options["isolation"] or ("remote" if options["remote"] else None)
    wishes = {"isolation": grade}
    if plain:
        document = _remembered(app, names, wishes)
        if document is not None:
            if options["substituter"]:
                document["substituted"] = {"from": {}, "notes": [], "taken": 0}
            click.echo(text(document, as_json=app.json))
            return
    document = _realize(app, names, wishes, plain, options)
    app.quiet()
    click.echo(text(document, as_json=app.json))


def _remembered(app: App, names: Sequence[str], wishes: Mapping[str, Any]) -> dict[str, Any] | None:
    """The answer without a look at anything but the store's memo."""
    from reprobuild.engine.recall import recall

    glance = app.glance()
    answer = recall(glance, app.flake_dir, names, wishes) if glance is not None else None
    return None if answer is None else remembered(answer)


def _realize(
    app: App,
    names: Sequence[str],
    wishes: Mapping[str, Any],
    plain: bool,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    from reprobuild.cli.evaluation import evaluate, parse_overrides, watched_paths
    from reprobuild.core.derivation import Isolation
    from reprobuild.engine.fingerprint import fingerprint
    from reprobuild.engine.recall import root_name
    from reprobuild.engine.results import keep_document, memo

    watched = watched_paths(app)
    key = fingerprint(app.flake_dir, watched, dict(wishes))
    # A dry run changes nothing, so whoever may only read the store may do it, too.
    idle = options["dry_run"] and not options["override"]
    if idle:
        app.look()
    with nullcontext() if idle else app.store.lease():
        overrides = parse_overrides(app, options["override"])
        graph, targets = evaluate(app, names, overrides)
        located = {name: place for target in targets for name, place in target.located.items()}
        if options["out_link"] and len(located) > 1:
            raise ReprobuildError(
                "E-USAGE",
                f"--out-link is one link, to one result; asked for are {', '.join(located)}",
                hint="name one of them, or make a link of each with a call of its own",
            )
        drvs = [place.drv for place in located.values()]
        required = _required(app, [t.installable.output for t in targets])
        isolation = Isolation(wishes["isolation"]) if wishes["isolation"] else required
        away, shared = _elsewhere(app, isolation, options), _shared(app, options)
        images = [
            target.installable.output
            for target in targets
            if target.evaluation.image is not None and target.installable.component is None
        ]
        if images:
            from reprobuild.cli.imageattest import hold_realized, hold_to_isolation

            hold_to_isolation(app, images, isolation.value)
        wish = _wishes(graph, drvs, isolation, options)
        realizer = app.building.realizer(
            isolation, keep_failed=options["keep_failed"], elsewhere=away, shared=shared
        )
        if options["dry_run"]:
            return _dry_run(realizer.plan(graph, drvs, wish), graph)
        caches = _caches(app, options)
        if caches is not None:
            caches.prefetch(graph, drvs, isolation)
        if shared is not None and not options["from_source"] and options["check"] is None:
            shared.prefetch(graph, drvs, isolation)
        here = away is None or away.fallback
        plan = realizer.plan(graph, drvs, wish)
        soon = wish.limits.jobs if away is None else 0
        app.building.check_before(plan, graph, isolation, here=here, jobs=soon)
        again = options["from_source"] or options["check"] is not None
        if again:
            from reprobuild.engine.compare import compare, known_outputs, require_equal

            known = known_outputs(app.store, graph.nodes)
        # What builds left is removed while the answer is put together and kept.
        with realizer.builder.executor.batch():
            with _what_next(graph, targets):
                done = realizer.realize(graph, drvs, wish, plan, partial(_show, app, targets))
            answer = _answer(app, targets, done)
            if away is not None:
                answer["remote"] = away.document()
            taken = before = len(caches.taken) if caches is not None else 0
            if shared is not None:
                answer["remote_cache"] = shared.document()
                taken += shared.taken
                before += shared.taken - done.shared
            if caches is not None:
                answer["substituted"] = caches.document()
            # what a cache gave before the plan was made, the plan found on record
            answer["counts"] |= {"taken": taken, "reused": max(0, done.reused - before)}
            for name in images:
                if name in answer["outputs"]:
                    hold_realized(app, Path(answer["outputs"][name]["path"]))
            dirty = any(target.evaluation.dirty for target in targets)
            for name, place in located.items():
                store_root = root_name(name + ("=dirty" if dirty else ""), app.flake_dir)
                kept = _closure(app, graph, place.drv, done)
                app.store.set_root(store_root, keep_document(kept, {"answer": answer}))
            if plain:
                app.store.set_root(*memo(app.flake_dir, names, watched, answer, key))
            if options["out_link"]:
                _link(app, Path(options["out_link"]), answer)
    if again:
        compared = compare(done.chosen, known)
        answer["compared"] = compared.document()
        require_equal(compared)
    return answer


def _caches(app: App, options: Mapping[str, Any]) -> Substitution | None:
    """The binary caches, where some are named."""
    if not options["substituter"]:
        return None
    from reprobuild.cli.substituters import substitution

    return substitution(app, () if options["from_source"] else options["substituter"])


def _elsewhere(app: App, isolation: Isolation, options: Mapping[str, Any]) -> Elsewhere | None:
    """Other machines, where some are named; raises E-USAGE for what does not go together."""
    from reprobuild.core.derivation import Isolation

    if not options["remote"]:
        for option in ("no_local", "remote_jobs"):
            if options[option]:
                word = option.replace("_", "-")
                raise ReprobuildError("E-USAGE", f"--{word} says nothing without --remote URL")
        return None
    if isolation is not Isolation.REMOTE:
        raise ReprobuildError(
            "E-USAGE",
            f"--remote does not go with --isolation {isolation.value}: what other machines make "
            "is of grade remote",
        )
    if options["dry_run"]:
        return None
    return app.remoting.elsewhere(
        options["remote"], jobs=options["remote_jobs"] or 0, fallback=not options["no_local"]
    )


def _shared(app: App, options: Mapping[str, Any]) -> EntryCache | None:
    """A shared cache, where one is named."""
    if not options["remote_cache"] or options["dry_run"]:
        return None
    return app.remoting.shared(
        options["remote_cache"],
        app.keyring,
        own=options["remote_cache_trust"] == "own",
        key="default" if options["remote_cache_mode"] == "read-write" else None,
    )


@contextmanager
def _what_next(graph: Graph, targets: Sequence[Target]) -> Iterator[None]:
    """A failed build's hint names the commands that show its log and open its sandbox."""
    from reprobuild.core.digest import Digest

    try:
        yield
    except ReprobuildError as error:
        drv = error.facts.get("drv")
        if error.code.startswith("E-BUILD-") and isinstance(drv, str):
            failed = Digest.parse(drv)
            for target in targets:
                if failed in graph.closure([place.drv for place in target.located.values()]):
                    of, name = target.installable, graph.nodes[failed].name
                    error.hint = (
                        f"{error.hint}: `reprobuild log --installable {of} {name}`, "
                        f"`reprobuild shell {of} -d {name}`"
                    )
                    break
        raise


def _required(app: App, outputs: Sequence[str]) -> Isolation:
    from reprobuild.core.derivation import Isolation

    grades = [
        release.isolation
        for name in outputs
        if (release := app.project.flake.outputs[name].release) is not None
    ]
    order = list(Isolation)
    return min(grades, key=order.index, default=Isolation.FULL)


def _wishes(
    graph: Any, drvs: list[Any], isolation: Isolation, options: Mapping[str, Any]
) -> Wishes:
    from reprobuild.engine.realize import Wishes
    from reprobuild.engine.scheduler import Limits

    cores = options["cores"] or len(os.sched_getaffinity(0))
    memory = options["memory"]
    limits = Limits(
        jobs=options["jobs"] or cores,
        cores=cores,
        memory=parse_memory(memory) if memory else int(machine_memory() * 0.85),
    )
    check: frozenset[Any] = frozenset()
    if options["check"] == "closure":
        check = frozenset(d for d in graph.closure(drvs) if graph.nodes[d].fixed is None)
    elif options["check"] == "named":
        check = frozenset(drvs)
    elif options["check"] is not None:
        raise ReprobuildError(
            "E-USAGE", f"--check={options['check']}: say --check or --check=closure"
        )
    return Wishes(
        isolation=isolation,
        limits=limits,
        keep_going=options["keep_going"],
        check=check,
        from_source=options["from_source"],
    )


def _show(app: App, targets: Sequence[Target], done: Realized) -> None:
    """Has the trees that will be answered with lie there as files."""
    for target in targets:
        for place in target.located.values():
            app.store.materialise(done.chosen[place.drv].outputs[place.output])


def _answer(app: App, targets: Sequence[Any], done: Realized) -> dict[str, Any]:
    outputs: dict[str, Any] = {}
    document: dict[str, Any] = {"counts": done.counts(), "outputs": outputs}
    if done.reread:
        document["reread"] = {
            name: {"changed": list(found.changed), "included": found.included}
            for name, found in sorted(done.reread.items())
        }
    for target in targets:
        for name, place in target.located.items():
            record = done.chosen[place.drv]
            tree = record.outputs[place.output]
            outputs[name] = {
                "dirty": list(target.evaluation.dirty),
                "drv": str(place.drv),
                "isolation": record.isolation.value,
                "path": str(app.store.materialise(tree)),
                "tree": str(tree),
            }
            if target.installable.component is None and target.evaluation.image is not None:
                document["image"] = app.image_facts(tree).document()
    return document


def _closure(app: App, graph: Any, drv: Any, done: Realized) -> dict[Any, Any]:
    """The chosen records below a derivation; where this run looked at none, those on record."""
    kept: dict[Any, Any] = {}
    for digest in graph.closure([drv]):
        record = done.chosen.get(digest) or app.store.realized(digest)
        if record is not None and all(app.store.contains(t) for t in record.outputs.values()):
            kept[digest] = record
    return kept


def _dry_run(plan: Any, graph: Any) -> dict[str, Any]:
    return {
        "plan": [
            {
                "deed": step.deed.value,
                "drv": str(step.drv),
                "name": graph.nodes[step.drv].name,
                "reason": step.reason,
            }
            for step in plan.steps
        ]
    }


def _check_link(app: App, place: str) -> None:
    """Raises E-USAGE where --out-link names no place for a link, or one that is the store's."""
    if not place:
        raise ReprobuildError(
            "E-USAGE", "--out-link needs a path, and got none", hint="say --out-link result"
        )
    path = Path(place)
    app.check_link(path, "--out-link")
    store = app.settings.store_path.resolve()
    if path.parent.resolve().is_relative_to(store):
        raise ReprobuildError(
            "E-USAGE",
            f"--out-link {path}: that is inside the store, which holds nothing but its own",
            file=str(path),
            hint=f"name a place outside of {store}",
        )


def _link(app: App, path: Path, answer: Mapping[str, Any]) -> None:
    from reprobuild.engine.results import link_root

    output = next(iter(answer["outputs"].values()))
    target = output["path"]
    app.store.set_root(*link_root(path.absolute(), target, output["tree"]))
    temporary = path.with_name(f".new-{os.urandom(4).hex()}")
    try:
        temporary.symlink_to(target)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ReprobuildError(
            "E-USAGE", f"--out-link {path}: {error.strerror}", file=str(path)
        ) from error
