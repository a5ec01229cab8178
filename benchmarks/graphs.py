"""One graph of derivations, as a project of ours and as a Nix expression.

`count` trivial builds, a hundred a group; each tenth one stands alone and each other one needs the
one before it (with `chained`), or all stand alone. A group is joined, and the groups are joined.
Both sides run the same static shell.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

GROUP = 100
PER_CHAIN = 10

FLAKE = """\
format = 0
default = "all"
[inputs.root]
kind = "path"
path = "root"
[toolchains.shell]
root = "inputs.root"
[outputs.all]
components = ["all"]
toolchain = "shell"
"""


def shell() -> Path:
    """A static busybox (Debian: busybox-static)."""
    found = shutil.which("busybox")
    if found is None:
        sys.exit("busybox is not installed (apt-get install busybox-static)")
    return Path(found)


def project(home: Path, count: int, *, chained: bool) -> None:
    """Writes the project."""
    program = home / "root/bin/sh"
    program.parent.mkdir(parents=True)
    shutil.copyfile(shell(), program)
    program.chmod(0o755)
    (home / "root/usr").mkdir()
    (home / "root/usr/empty").touch()
    (home / "flake-like.toml").write_text(FLAKE)
    derivations = home / "derivations"
    derivations.mkdir()
    groups = count // GROUP
    for group in range(groups):
        rows = ['result = "steps.joined"']
        for step in range(GROUP):
            rows += [
                f"[steps.s{step}]",
                'kind = "script"',
                f"run = 'echo {group}.{step} > $out/text'",
            ]
            if chained and step % PER_CHAIN:
                rows.append(f'inputs = {{ before = "steps.s{step - 1}" }}')
        places = ",".join(f'{{from="steps.s{s}",to="s{s}"}}' for s in range(GROUP))
        rows += ["[steps.joined]", 'kind = "join"', f"place = [{places}]"]
        (derivations / f"g{group}.toml").write_text("\n".join(rows) + "\n")
    places = ",".join(f'{{from="components.g{g}",to="g{g}"}}' for g in range(groups))
    (derivations / "all.toml").write_text(
        f'result = "steps.joined"\n[steps.joined]\nkind = "join"\nplace = [{places}]\n'
    )


NIX = """\
let
  sh = "%s";
  mk = attrs: derivation (attrs // { system = "x86_64-linux"; builder = sh; });
  run = name: text: more: mk ({ inherit name; args = [ "sh" "-euc" text ]; } // more);
  chain = group: start: builtins.foldl' (done: i:
      let step = start + i; in
      done ++ [ (run "g${toString group}.s${toString step}"
        "echo ${toString group}.${toString step} > $out"
        (if %s && i != 0 then { before = builtins.elemAt done (i - 1); } else { })) ]
    ) [ ] (builtins.genList (i: i) %d);
  group = g: run "g${toString g}.joined" "echo $steps > $out" {
    steps = builtins.concatMap (c: chain g (c * %d)) (builtins.genList (c: c) %d);
  };
in run "all.joined" "echo $groups > $out" { groups = builtins.genList group %d; }
"""


def expression(home: Path, count: int, *, chained: bool) -> Path:
    """Writes the same as a Nix expression; its file."""
    path = home / "all.nix"
    said = "true" if chained else "false"
    path.write_text(NIX % (shell(), said, PER_CHAIN, PER_CHAIN, GROUP // PER_CHAIN, count // GROUP))
    return path
