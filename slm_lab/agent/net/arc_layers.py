"""Layers that an arc may name: those of torch.nn, and beside them norms, merges, forks and picks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from slm_lab.agent.net.batch_norm import BatchNorm1d
from slm_lab.agent.net.batch_renorm import BatchRenorm1d, BatchRenormSpec
from slm_lab.lib.errors import SpecError, hint
from slm_lab.spec.parse import parse


class Lazy(nn.Module):
    """Stands for a layer until what comes to it tells its width. Those of torch.nn have their own way to do so."""

    @abstractmethod
    def made(self, x: Tensor) -> nn.Module:
        """The layer for inputs of this shape."""


def batch_renorm(num_features: int, **settings: Any) -> BatchRenorm1d:
    return BatchRenorm1d(num_features, **parse(BatchRenormSpec, settings, "", []).model_dump())


class LazyBatchRenorm1d(Lazy):
    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.settings = parse(BatchRenormSpec, settings, "", []).model_dump()

    def made(self, x: Tensor) -> nn.Module:
        return BatchRenorm1d(x.shape[1], **self.settings)


class LazyBatchNorm1d(Lazy):
    def __init__(
        self, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True, track_running_stats: bool = True
    ) -> None:
        super().__init__()
        self.settings = (eps, momentum, affine, track_running_stats)

    def made(self, x: Tensor) -> nn.Module:
        return BatchNorm1d(x.shape[1], *self.settings)


class WeightNormLinear(nn.Linear):
    """[B, ..., in] -> [B, ..., out] by weights g v / |v|, row by row; g and v are learnt."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__(in_features, out_features, bias)
        weight_norm(self)


class LazyWeightNormLinear(Lazy):
    def __init__(self, out_features: int, bias: bool = True) -> None:
        super().__init__()
        self.out_features, self.bias = out_features, bias

    def made(self, x: Tensor) -> nn.Module:
        return WeightNormLinear(x.shape[-1], self.out_features, self.bias)


class Merge(nn.Module):
    """Several tensors become one along `dim`: given one by one, or as one list."""

    def __init__(self, dim: int = 1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, *tensors: Any) -> Tensor:
        return self.merged(tensors[0] if isinstance(tensors[0], list | tuple) else tensors)

    @abstractmethod
    def merged(self, tensors: Any) -> Tensor: ...

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class MergeConcat(Merge):
    def merged(self, tensors: Any) -> Tensor:
        return torch.cat(tensors, self.dim)


class MergeStack(Merge):
    def merged(self, tensors: Any) -> Tensor:
        return torch.stack(tensors, self.dim)


class MergeSum(Merge):
    def merged(self, tensors: Any) -> Tensor:
        return torch.stack(tensors, self.dim).sum(self.dim)


class MergeProd(Merge):
    def merged(self, tensors: Any) -> Tensor:
        return torch.stack(tensors, self.dim).prod(self.dim)


class MergeMean(Merge):
    def merged(self, tensors: Any) -> Tensor:
        return torch.stack(tensors, self.dim).mean(self.dim)


class MergeDot(nn.Module):
    """Dot products along the last dim: [B, ..., n] twice -> [B, ...]."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return (x * y).sum(-1)


class MergeBMM(nn.Module):
    """Matrix products: [B, n, k] and [B, k, m] -> [B, n, m]."""

    def forward(self, input: Tensor, mat2: Tensor) -> Tensor:
        return torch.bmm(input, mat2)


class MergeFiLM(nn.Module):
    """A feature [B, C, ...], each of C scaled and shifted by linear functions of a conditioner [B, n]."""

    def __init__(self, feature_dim: int, conditioner_dim: int) -> None:
        super().__init__()
        self.gamma = nn.Linear(conditioner_dim, feature_dim)
        self.beta = nn.Linear(conditioner_dim, feature_dim)

    def forward(self, feature: Tensor, conditioner: Tensor) -> Tensor:
        gamma, beta = self.gamma.forward(conditioner), self.beta.forward(conditioner)
        spread = (*gamma.shape, *[1] * (feature.dim() - gamma.dim()))
        return gamma.view(spread) * feature + beta.view(spread)


class ForkChunk(nn.Module):
    """A tensor in so many equal parts along `dim`; a last part may be smaller."""

    def __init__(self, chunks: int = 2, dim: int = 1) -> None:
        super().__init__()
        self.chunks, self.dim = chunks, dim

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return x.chunk(self.chunks, self.dim)


class ForkSplit(nn.Module):
    """A tensor in parts of one size, or of each size given, along `dim`."""

    def __init__(self, split_size_or_sections: int | list[int], dim: int = 1) -> None:
        super().__init__()
        self.sizes, self.dim = split_size_or_sections, dim

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return torch.split(x, self.sizes, self.dim)


class Get(nn.Module):
    """One of several outputs, by place or name."""

    def __init__(self, key: int | str = 0) -> None:
        super().__init__()
        self.key = key

    def forward(self, x: Any) -> Any:
        return x[self.key]


class Narrow(nn.Module):
    """A stretch of a tensor along `dim`."""

    def __init__(self, dim: int, start: int, length: int) -> None:
        super().__init__()
        self.stretch = (dim, start, length)

    def forward(self, x: Tensor) -> Tensor:
        return x.narrow(*self.stretch)


class IndexSelect(nn.Module):
    """Some places of a tensor along `dim`."""

    indices: Tensor

    def __init__(self, dim: int, indices: list[int]) -> None:
        super().__init__()
        self.dim = dim
        self.register_buffer("indices", torch.tensor(indices, dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        return x.index_select(self.dim, self.indices)


class TorchFn(nn.Module):
    """A function of torch, with arguments that stay the same."""

    def __init__(self, name: str, **kwargs: Any) -> None:
        super().__init__()
        function = vars(torch).get(name)
        if not callable(function) or isinstance(function, type):
            known = [key for key, value in vars(torch).items() if callable(value)]
            raise SpecError(f"name: torch has no function {name!r}.{hint(str(name), known)}")
        self.function, self.kwargs = function, kwargs

    def forward(self, x: Any) -> Any:
        return self.function(x, **self.kwargs)


class Reduce(TorchFn):
    """A function of torch that reduces dims, e.g. mean."""

    def __init__(self, name: str, dim: int | list[int] | None, keepdim: bool = False) -> None:
        super().__init__(name, dim=dim, keepdim=keepdim)


OWN: Mapping[str, Callable[..., nn.Module]] = {
    "BatchRenorm1d": batch_renorm,
    "LazyBatchRenorm1d": LazyBatchRenorm1d,
    "WeightNormLinear": WeightNormLinear,
    "LazyWeightNormLinear": LazyWeightNormLinear,
    "MergeConcat": MergeConcat,
    "MergeStack": MergeStack,
    "MergeSum": MergeSum,
    "MergeProd": MergeProd,
    "MergeMean": MergeMean,
    "MergeDot": MergeDot,
    "MergeBMM": MergeBMM,
    "MergeFiLM": MergeFiLM,
    "ForkChunk": ForkChunk,
    "ForkSplit": ForkSplit,
    "Get": Get,
    "Narrow": Narrow,
    "IndexSelect": IndexSelect,
    "Reduce": Reduce,
    "TorchFn": TorchFn,
}
_NO_LAYERS = ("container", "loss", "module")
LAYERS: Mapping[str, Callable[..., nn.Module]] = {
    **{
        name: cls
        for name, cls in vars(nn.modules).items()
        if isinstance(cls, type) and issubclass(cls, nn.Module) and cls.__module__.split(".")[-1] not in _NO_LAYERS
    },
    "BatchNorm1d": BatchNorm1d,  # a last minibatch may be one row
    "LazyBatchNorm1d": LazyBatchNorm1d,
    **OWN,
}
