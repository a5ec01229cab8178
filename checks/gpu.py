"""Calls kernels that were built for TVM FFI, with ctypes and numpy alone.

For the programs of kernel checks (docs/kernels.md). Nothing but the module, libtvm_ffi and
libcudart is loaded: no PyTorch, and no extension that fits one version of Python only.

Layouts are those of tvm/ffi/c_api.h (0.1) and dlpack.h (1.x).
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

CANNOT_RUN = 77
"""Ends a check that this machine cannot run; the last line says why."""

CUDA_DEVICE = 2
_NONE, _INT, _BOOL, _FLOAT, _TENSOR = 0, 1, 2, 3, 7
_TO_DEVICE, _TO_HOST = 1, 2
_MAJOR, _MINOR = 75, 76
_OBJECT_HEADER = 24


def cannot_run(why: str) -> NoReturn:
    """Ends the program as one that this machine cannot run."""
    print(why)
    sys.exit(CANNOT_RUN)


try:
    import numpy as np
except ImportError:
    cannot_run(f"numpy cannot be imported by {sys.executable}")


class CudaError(Exception):
    """A call of the runtime or of a kernel's launcher failed."""


class _Device(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int32), ("number", ctypes.c_int32))


class _Type(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Value(ctypes.Union):
    _fields_ = (
        ("integer", ctypes.c_int64),
        ("real", ctypes.c_double),
        ("pointer", ctypes.c_void_p),
    )


class _Any(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int32), ("padding", ctypes.c_uint32), ("value", _Value))


class _Bytes(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("size", ctypes.c_size_t))


# DLPack: (code, bits) by a name; numpy has no bfloat16 and no float8, whose bits are integers here.
TYPES: dict[str, tuple[int, int, str]] = {
    "int32": (0, 32, "<i4"),
    "int64": (0, 64, "<i8"),
    "uint8": (1, 8, "<u1"),
    "float16": (2, 16, "<f2"),
    "float32": (2, 32, "<f4"),
    "bfloat16": (4, 16, "<u2"),
}


class Gpu:
    """The first GPU, by way of libcudart."""

    def __init__(self, runtime: Path) -> None:
        self._cuda = ctypes.CDLL(str(runtime), mode=ctypes.RTLD_GLOBAL)
        self._cuda.cudaGetErrorString.restype = ctypes.c_char_p
        count = ctypes.c_int()
        status = self._cuda.cudaGetDeviceCount(ctypes.byref(count))
        if status != 0 or count.value == 0:
            cannot_run(f"there is no GPU that can be used: {self._said(status)}")

    def _said(self, status: int) -> str:
        return str(self._cuda.cudaGetErrorString(status).decode("ascii", "replace"))

    def _check(self, status: int, what: str) -> None:
        if status != 0:
            raise CudaError(f"{what}: {self._said(status)}")

    def architecture(self) -> str:
        """`sm_90` and the like."""
        numbers = []
        for attribute in (_MAJOR, _MINOR):
            number = ctypes.c_int()
            status = self._cuda.cudaDeviceGetAttribute(ctypes.byref(number), attribute, 0)
            self._check(status, "cudaDeviceGetAttribute")
            numbers.append(number.value)
        return f"sm_{numbers[0]}{numbers[1]}"

    def synchronize(self) -> None:
        """Waits for all that was launched; raises what went wrong in it."""
        self._check(self._cuda.cudaDeviceSynchronize(), "cudaDeviceSynchronize")

    @contextmanager
    def tensor(self, kind: str, array: Any) -> Iterator[DeviceTensor]:
        """An array on the GPU, `array` being what it holds first; freed behind the block."""
        pointer = ctypes.c_void_p()
        size = ctypes.c_size_t(max(array.nbytes, 1))
        self._check(self._cuda.cudaMalloc(ctypes.byref(pointer), size), "cudaMalloc")
        try:
            made = DeviceTensor(kind, np.ascontiguousarray(array), pointer, self._copy)
            made.write()
            yield made
        finally:
            self._cuda.cudaFree(pointer)

    def _copy(self, to: Any, source: Any, size: int, way: int) -> None:
        status = self._cuda.cudaMemcpy(to, source, ctypes.c_size_t(size), way)
        self._check(status, "cudaMemcpy")


class DeviceTensor:
    """A dense array on the GPU, and its DLPack view."""

    def __init__(
        self, kind: str, array: Any, pointer: ctypes.c_void_p, copy: Callable[..., None]
    ) -> None:
        code, bits, layout = TYPES[kind]
        if array.dtype != np.dtype(layout):
            raise TypeError(f"{kind} is held as {layout}, not as {array.dtype}")
        self._array, self._pointer, self._copy = array, pointer, copy
        self._shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        self._strides = (ctypes.c_int64 * array.ndim)(
            *(stride // array.itemsize for stride in array.strides)
        )
        self.view = _Tensor(
            pointer,
            _Device(CUDA_DEVICE, 0),
            array.ndim,
            _Type(code, bits, 1),
            self._shape,
            self._strides,
            0,
        )

    def write(self) -> None:
        """From here to the GPU."""
        self._copy(self._pointer, self._array.ctypes.data_as(ctypes.c_void_p),
                   self._array.nbytes, _TO_DEVICE)  # fmt: skip

    def read(self) -> Any:
        """What the GPU has there now."""
        found = np.empty_like(self._array)
        self._copy(found.ctypes.data_as(ctypes.c_void_p), self._pointer, found.nbytes, _TO_HOST)
        return found


class Module:
    """A shared library of functions that are exported for TVM FFI."""

    def __init__(self, library: Path, tvm_ffi: Path) -> None:
        self._ffi = ctypes.CDLL(str(tvm_ffi), mode=ctypes.RTLD_GLOBAL)
        self._library = ctypes.CDLL(str(library))

    def call(self, name: str, *arguments: DeviceTensor | bool | int | float) -> None:
        """Calls a function that gives nothing back; raises CudaError with what it says."""
        function = getattr(self._library, f"__tvm_ffi_{name}")
        values = (_Any * len(arguments))(*(_any(argument) for argument in arguments))
        result = _Any(_NONE, 0, _Value(integer=0))
        if function(None, values, len(arguments), ctypes.byref(result)) != 0:
            raise CudaError(f"{name}: {self._error()}")

    def _error(self) -> str:
        handle = ctypes.c_void_p()
        self._ffi.TVMFFIErrorMoveFromRaised(ctypes.byref(handle))
        if not handle.value:
            return "failed without a word"
        said = (_Bytes * 2).from_address(handle.value + _OBJECT_HEADER)[1]
        return ctypes.string_at(said.data, said.size).decode("utf-8", "replace")


def _any(argument: DeviceTensor | bool | int | float) -> _Any:
    if isinstance(argument, DeviceTensor):
        return _Any(_TENSOR, 0, _Value(pointer=ctypes.addressof(argument.view)))
    if isinstance(argument, bool):
        return _Any(_BOOL, 0, _Value(integer=int(argument)))
    if isinstance(argument, int):
        return _Any(_INT, 0, _Value(integer=argument))
    return _Any(_FLOAT, 0, _Value(real=argument))


def module_file() -> Path:
    """The one shared library of the module that is checked."""
    return _only("REPROBUILD_MODULE")


def used_file(name: str) -> Path:
    """The one file, or shared library, that the check's `uses` has under a name."""
    return _only("REPROBUILD_USE_" + name.upper().replace("-", "_"))


def _only(variable: str) -> Path:
    path = Path(os.environ[variable])
    if path.is_file():
        return path
    found = sorted(path.glob("*.so*"))
    if len(found) != 1:
        raise SystemExit(f"{variable}: {len(found)} shared libraries where one is wanted")
    return found[0]
