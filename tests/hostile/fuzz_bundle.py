"""Bundles mutated by what their reading covers (atheris, libFuzzer): whole files and their indexes.

    python tests/hostile/fuzz_bundle.py index|file WORK [libFuzzer's options, e.g. -runs=50000]

`index`: the input becomes a bundle's index, and everything around it is made to agree, signature
included. `file`: the input is the file. WORK is an empty directory for the corpus and stores. Ends
with a status other than 0 when an import ends otherwise than with an error of its own, or leaves
something behind.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import atheris  # type: ignore[import-untyped,import-not-found,unused-ignore]

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

READ = (
    *("reprobuild.core.bundle", "reprobuild.core.tree", "reprobuild.core.encoding"),
    *("reprobuild.adapters.bundle", "reprobuild.engine.transfer_import"),
)
with atheris.instrument_imports(include=list(READ)):
    import test_bundle_hostile as hostile  # type: ignore[import-not-found,unused-ignore]

    from reprobuild.core.bundle import format as layout
    from support.bundles import make_release


def main() -> None:
    """Fuzzes until libFuzzer has had enough."""
    what, work, options = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
    release = make_release(work / "release")
    layout.PIECE = 2000
    release.export(work / "b", signer=hostile.SIGNER)
    whole = (work / "b").read_bytes()
    release.store.close()
    corpus, place = work / "corpus", work / "place"
    corpus.mkdir()
    place.mkdir()
    seed = hostile.index_of(whole) if what == "index" else whole
    (corpus / "seed").write_bytes(seed)

    def one(data: bytes) -> None:
        file = hostile.with_index(whole, data) if what == "index" else data
        good = hostile.INDEX_CODES if what == "index" else hostile.BUNDLE_CODES
        code = hostile.attempt(file, place)
        assert code in good or data == seed, code
        if not code:  # what is there is not read again
            shutil.rmtree(place)
            place.mkdir()

    atheris.Setup(
        [sys.argv[0], f"-max_len={2 * len(seed)}", "-len_control=0", *options, str(corpus)], one
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()
