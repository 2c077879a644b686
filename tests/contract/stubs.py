"""Stand-ins for libraries that a client imports and that are not needed to talk to the API, first of all torch.

Only modules that are not installed are replaced. Arrays of numpy take the place of tensors.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import logging
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np


class _AnyMeta(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything

    def __getitem__(cls, _: Any) -> Any:
        return Anything

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls is not Anything:
            return super().__call__(*args, **kwargs)
        # A decorator returns what it decorates.
        return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else Anything

    def __enter__(cls) -> Any:
        return Anything

    def __exit__(cls, *_: Any) -> None:
        return None


class Anything(metaclass=_AnyMeta):
    """Whatever a module has: a class to inherit from, a function to call, a decorator, a constant."""

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.any_schema()


class _Stub(ModuleType):
    __path__: Sequence[str] = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        below = f"{self.__name__}.{name}"
        return importlib.import_module(below) if any(each.startswith(below) for each in TORCH) else Anything


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, names: Collection[str], made: dict[str, dict[str, Any]]) -> None:
        self._names, self._made = set(names), made

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:  # noqa: ARG002
        parts = name.split(".")
        stubbed = any(".".join(parts[: end + 1]) in self._names for end in range(len(parts)))
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if stubbed else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Stub(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(self._made.get(module.__name__, {}))


class Tensor(np.ndarray):
    """An array with the few methods of a tensor that lie on a client's way."""

    def cpu(self) -> "Tensor":
        return self

    def to(self, *_: Any, **__: Any) -> "Tensor":
        return self

    def numpy(self) -> np.ndarray:
        return np.asarray(self)


def tensor(values: Any) -> Tensor:
    """Return an array as a tensor."""
    return np.asarray(values, dtype=np.float32).view(Tensor)


class _Loader:
    """A data loader in this process: what the dataset yields, collated one by one."""

    def __init__(self, dataset: Any, collate_fn: Callable[[list[Any]], Any] = lambda batch: batch, **_: Any) -> None:
        self._dataset, self._collate = dataset, collate_fn

    def __iter__(self) -> Iterator[Any]:
        return (self._collate([row]) for row in self._dataset)

    def __len__(self) -> int:
        return 0


def _softmax(values: Any, dim: int) -> Tensor:
    powers = np.exp(values - np.max(values, axis=dim, keepdims=True))
    return tensor(powers / powers.sum(axis=dim, keepdims=True))


#: What the modules have that must work.
TORCH: dict[str, dict[str, Any]] = {
    "torch": {
        "Tensor": Tensor,
        "tensor": tensor,
        "stack": lambda arrays: tensor(np.stack(arrays)),
        "no_grad": lambda: lambda function: function,
        "device": str,
    },
    "torch.cuda": {
        "is_available": lambda: False,
        "device_count": lambda: 0,
        "empty_cache": lambda: None,
    },
    "torch.utils.data": {
        "IterableDataset": type("IterableDataset", (), {}),
        "Dataset": type("Dataset", (), {}),
        "DataLoader": _Loader,
        "get_worker_info": lambda: None,
    },
    "torch.nn.functional": {"softmax": _softmax},
    "torchvision.transforms": {
        "ToTensor": lambda: lambda picture: tensor(np.asarray(picture).transpose(2, 0, 1) / 255.0),
    },
    "structlog": {"get_logger": lambda *_: logging.getLogger("client")},
}


def install(names: Collection[str], always: Collection[str] = ()) -> list[str]:
    """Replace the modules of ``names`` that are not installed, and those of ``always``; return the replaced ones."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    sys.meta_path.insert(0, _Finder([*missing, *always], TORCH))
    return [*missing, *always]
