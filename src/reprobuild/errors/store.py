"""Exit status 7: the store is damaged or is not what it should be."""

from __future__ import annotations

from reprobuild.errors.kinds import Code, Exit

CODES = {
    "E-NO-STORE": Code(
        Exit.STORE, "there is no store at that place", "name the right one; `realize` makes it"
    ),
    "E-STORE-DAMAGED": Code(
        Exit.STORE,
        "an object of the store does not have the content that its name promises",
        "`reprobuild store verify` names all damage, `reprobuild store repair` mends it",
    ),
    "E-STORE-FORMAT": Code(
        Exit.STORE,
        "a directory is no store, or one of a format that this version does not know",
        "name another store directory, or use the version that made this one",
    ),
    "E-STORE-MISSING": Code(
        Exit.STORE,
        "an object is not in the store",
        "`reprobuild realize` makes it again; `reprobuild store verify` says what else is gone",
    ),
    "E-STORE-ROOT": Code(
        Exit.STORE,
        "a root does not say what it keeps, so nothing may be collected",
        "write the root anew by realizing its output, or remove its file under roots/",
    ),
}
