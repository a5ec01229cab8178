"""The program that runs a PEP 517 backend inside the sandbox, given to the interpreter as text.

It is part of the recipe, so changing it changes every python-wheel derivation.
"""

DRIVER = """\
import importlib, os, shutil, sys

source, default_backend, *requires = sys.argv[1:]
work = "/build/source"
shutil.copytree(source, work, symlinks=True)
for folder, _, names in os.walk(work):
    os.chmod(folder, 0o755)
    for name in names:
        path = os.path.join(folder, name)
        if not os.path.islink(path):
            os.chmod(path, 0o755 if os.access(path, os.X_OK) else 0o644)
os.chdir(work)

backend, in_tree = default_backend, []
if os.path.exists("pyproject.toml"):
    import tomllib
    with open("pyproject.toml", "rb") as file:
        system = tomllib.load(file).get("build-system", {})
    backend = system.get("build-backend", backend)
    in_tree = [os.path.join(work, path) for path in system.get("backend-path", [])]
sys.path[:0] = in_tree + requires
os.environ["PYTHONPATH"] = os.pathsep.join(in_tree + requires)

module, _, attribute = backend.partition(":")
hooks = importlib.import_module(module)
for part in filter(None, attribute.split(".")):
    hooks = getattr(hooks, part)
missing = []
if hasattr(hooks, "get_requires_for_build_wheel"):
    from importlib import metadata
    for wanted in hooks.get_requires_for_build_wheel():
        name = wanted.split(";")[0].split("[")[0]
        for mark in "<>=!~ ":
            name = name.split(mark)[0]
        try:
            metadata.version(name)
        except metadata.PackageNotFoundError:
            missing.append(wanted)
if missing:
    sys.exit("the backend asks for " + ", ".join(missing) + "; add them to `requires`")
print(hooks.build_wheel("/out/out"))
"""
