"""The steps from an image to the input of a model: as nodes, and in an independent form to verify them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from surgery import Builder, UsageError, Value

from ._ports import Dim

Numbers = np.ndarray[Any, np.dtype[np.float64]]
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Image:
    """An input for images, with the layout in the model (`inner`) and the layout of the given image (`outer`)."""

    port: Value
    inner: str
    outer: str

    @property
    def channel(self) -> int:
        """The axis of the channels in the model."""
        return self.inner.index("C")

    @property
    def spatial(self) -> tuple[int, int]:
        """The axes of height and width in the model."""
        return self.inner.index("H"), self.inner.index("W")

    @property
    def turns(self) -> list[int] | None:
        """The permutation to the layout of the model; None if the image already has it."""
        return None if self.inner == self.outer else [self.outer.index(letter) for letter in self.inner]

    @property
    def size(self) -> list[int] | None:
        """Height and width in the model; None if they are free."""
        dims = self.port.declared_dims or ()
        found = [dim for dim in (dims[axis] for axis in self.spatial) if isinstance(dim, int)]
        return found if len(found) == 2 else None

    def dims(self, taken: Iterable[str] | None) -> list[Dim]:
        """Return the dims of the image; with `taken`, height and width get names that are not in it."""
        dims = list(self.port.declared_dims or ())
        if taken is not None:
            known = set(taken)
            for axis, wish in zip(self.spatial, ("height", "width")):
                dims[axis] = next(name for name in _numbered(f"image_{wish}") if name not in known)
        return [dims[self.inner.index(letter)] for letter in self.outer]


def _numbered(name: str) -> Iterable[str]:
    yield name
    yield from (f"{name}_{number}" for number in range(1, 1000))


@dataclass(frozen=True)
class Steps:
    """The steps applied to an image: cast, layout, resize, swap, scale, mean, std; the layout may come first."""

    image: Image
    taken: Any
    resize: str | None
    coordinates: str
    antialias: bool
    swap: bool
    scale: Numbers
    mean: Numbers
    std: Numbers

    @property
    def given(self) -> Any:
        """The element type of the model's input."""
        return self.image.port.dtype

    @property
    def is_narrow(self) -> bool:
        """Whether the input has a 16-bit float type, too narrow for the computation."""
        return self.given.name in ("FLOAT16", "BFLOAT16")

    @property
    def change_nothing(self) -> bool:
        """Whether the image already is the input of the model."""
        factor, term = self._affine()
        same = np.all(factor == 1) and np.all(term == 0) and self.given == self.taken
        return bool(same) and not (self.swap or self.resize or self.image.turns)

    def check(self, opset: int) -> None:
        """Raise UsageError if the model or its opset does not support the steps."""
        name = self.image.port.name
        channels = (self.image.port.declared_dims or ())[self.image.channel]
        if self.swap and channels != 3:
            raise UsageError(f"'{name}' has {_told(channels)} channels, and three can be swapped")
        for option in ("scale", "mean", "std"):
            count = getattr(self, option).size
            if count != 1 and count != channels:
                raise UsageError(f"'{option}' has {count} numbers, and '{name}' {_told(channels)} channels")
        if not np.all(self.std):
            raise UsageError("'std' is zero")
        if self.resize is None:
            return
        if opset < 11:
            raise UsageError(f"Resize to a size requires opset 11, but the model has {opset}", todo=_UPGRADE)
        if self.antialias and opset < 18:
            raise UsageError(f"Resize requires opset 18 to filter, but the model has {opset}", todo=_UPGRADE)
        if self.image.size is None:
            raise UsageError(f"the height and width of '{name}' are free", todo="fix them with set-dims first")

    # As nodes

    def build(self, new: Builder) -> Value:
        """Build the nodes, and return the input for the model."""
        value = self.image.port
        if self.image.turns is not None:
            # Before the cast, because fewer bytes are moved.
            value = new.node("Transpose", value, perm=self.image.turns)
        working = _FLOAT if self.is_narrow else int(self.given)
        if int(self.taken) != working:
            value = new.node("Cast", value, to=working)
        if self.resize is not None:
            value = self._resized(value, new)
        if self.swap:
            order = new.constant(np.array([2, 1, 0], np.int64), "swapped")
            value = new.node("Gather", value, order, axis=self.image.channel)
        factor, term = (self._along_channels(each) for each in self._affine())
        if np.any(factor != 1):
            value = new.node("Mul", value, new.constant(factor, "scale"))
        if np.any(term != 0):
            value = new.node("Add", value, new.constant(term, "offset"))
        return new.node("Cast", value, to=self.given) if self.is_narrow else value

    def _resized(self, value: Value, new: Builder) -> Value:
        size, rank = self.image.size or [], len(self.image.inner)
        opset = self.image.port.graph.opset
        axes = list(self.image.spatial)
        attributes: dict[str, Any] = {"mode": self.resize, "coordinate_transformation_mode": self.coordinates}
        if opset >= 18:
            attributes |= {"axes": axes, "antialias": int(self.antialias) or None}
            sizes = new.constant(np.array(size, np.int64), "size")
            return new.node("Resize", value, None, None, sizes, attributes=attributes)
        shape = new.node("Shape", value)
        known = dict(zip(axes, size))
        parts = [
            new.constant(np.array([known[axis]], np.int64), "size")
            if axis in known
            else new.node("Gather", shape, new.constant(np.array([axis], np.int64), "axis"), axis=0)
            for axis in range(rank)
        ]
        # Before opset 13 the region and the scales must be given, even if empty.
        nothing = None if opset >= 13 else new.constant(np.zeros(0, np.float32), "none")
        return new.node("Resize", value, nothing, nothing, new.node("Concat", *parts, axis=0), attributes=attributes)

    def _affine(self) -> tuple[Numbers, Numbers]:
        """Return the factor to multiply by, and the term to add afterwards."""
        return self.scale / self.std, -self.mean / self.std

    def _along_channels(self, numbers: Numbers) -> Array:
        following = len(self.image.inner) - 1 - self.image.channel
        shaped = numbers.reshape(-1, *[1] * following) if numbers.size > 1 else numbers.reshape(())
        return shaped.astype(np.float64 if self.given.name == "DOUBLE" else np.float32)

    # In an independent form

    def told(self, opset: int) -> tuple[str, dict[str, Array]]:
        """Return the relation of the model's input to the image, as ONNX text and the constants that it reads.

        Each step is written as in its definition, independent of the choices in `build`: channels are split and
        concatenated, and the numbers are used as given.
        """
        working = _FLOAT if self.is_narrow else int(self.given)
        lines = [f"v = Cast<to = {working}>(image)"]
        constants: dict[str, Array] = {}
        if self.image.turns is not None:
            lines.append(f"v = Transpose<perm = {self.image.turns}>(v)")
        if self.resize is not None:
            lines += self._resize_told(opset, constants)
        if self.swap:
            axis = self.image.channel
            split = f"num_outputs = 3, axis = {axis}" if opset >= 18 else f"axis = {axis}"
            lines += [f"c0, c1, c2 = Split<{split}>(v)", f"v = Concat<axis = {axis}>(c2, c1, c0)"]
        for op, name, numbers in (("Mul", "scale", self.scale), ("Sub", "mean", self.mean), ("Div", "std", self.std)):
            lines.append(f"v = {op}(v, {name})")
            constants[name] = self._along_channels(numbers)
        lines.append(f"v = Cast<to = {int(self.given)}>(v)")
        return "\n".join(lines), constants

    def _resize_told(self, opset: int, constants: dict[str, Array]) -> list[str]:
        """Return the lines that resize to sizes of all dims, which are those of the image except height and width."""
        size = dict(zip(self.image.spatial, self.image.size or []))
        constants["given"] = np.array([size.get(axis, 0) for axis in range(4)], np.int64)
        constants["is_given"] = np.array([axis in size for axis in range(4)])
        mode = f'mode = "{self.resize}", coordinate_transformation_mode = "{self.coordinates}"'
        if self.antialias:
            mode += ", antialias = 1"
        nothing = ", "
        if opset < 13:
            constants["nothing"] = np.zeros(0, np.float32)
            nothing = "nothing, nothing"
        return ["s = Shape(v)", "s = Where(is_given, given, s)", f"v = Resize<{mode}>(v, {nothing}, s)"]


_FLOAT = 1
_UPGRADE = "run upgrade-opset before"


def _told(channels: Dim) -> str:
    return "an unknown number of" if channels is None else str(channels)
