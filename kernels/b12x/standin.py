"""Names of packages with nothing behind them: enough to import modules that only mention them.

Kernels are compiled from sources and shapes alone. PyTorch itself would be 500 MB of wheel that
needs CUDA's libraries to be imported. What is asked of it here: names of types, decorators that
register operators, the current stream (0), and that there is no GPU.
"""

import sys
import types


class Name:
    """Stands for anything that is looked up, called, or used as a decorator or an annotation.

    Nothing can be computed with it: no number, no truth, no length comes out.
    """

    def __init__(self, path):
        self._path = path

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return named(f"{self._path}.{name}")

    def __call__(self, *arguments, **keywords):
        # As a decorator it leaves the function as it is, with a place for what else is registered.
        if len(arguments) == 1 and not keywords and isinstance(arguments[0], types.FunctionType):
            arguments[0].register_fake = arguments[0].register_kernel = self
            return arguments[0]
        return self

    def __getitem__(self, key):
        return self

    def __or__(self, other):
        return self

    __ror__ = __or__

    def __bool__(self):
        raise TypeError(f"{self._path} is a stand-in")

    def __repr__(self):
        return self._path


_names = {}


def named(path):
    """The one stand-in of that name."""
    return _names.setdefault(path, Name(path))


class Module(types.ModuleType):
    """A module in which every name stands for something."""

    __version__ = "0"

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return named(f"{self.__name__}.{name}")


def stand_in(package, *parts):
    """Puts a module, and modules in it, in place of a package."""
    made = sys.modules[package] = Module(package)
    made.__path__ = []
    for part in parts:
        inner = sys.modules[f"{package}.{part}"] = Module(f"{package}.{part}")
        inner.__path__ = []
        setattr(sys.modules[f"{package}.{part}".rpartition(".")[0]], part.rpartition(".")[2], inner)
    return made


class Tensor:
    """A class, since it stands in `isinstance` and in unions of types."""


class Limits:
    """Of a type whose largest number kernels are made with: OCP 8-bit floating point, table 1."""

    def __init__(self, kind):
        self.max = {"torch.float8_e4m3fn": 448.0}[repr(kind)]


class Stream:
    """The default stream."""

    cuda_stream = 0


torch = stand_in("torch", "cuda", "nn", "nn.functional", "library", "distributed", "utils")
torch.Tensor = Tensor
torch.finfo = Limits
torch.cuda.current_stream = lambda *arguments: Stream()
torch.cuda.is_available = lambda: False
torch.cuda.is_current_stream_capturing = lambda: False
stand_in("triton", "language")
