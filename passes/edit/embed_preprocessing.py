"""Preprocessing of images, embedded in the model."""

from typing import Any, Literal

import numpy as np

from surgery import Graph, Parity, UsageError, Value, data_type, graph_pass

from ._asked import asked
from ._image import Image, Steps
from ._ports import only


@graph_pass("embed-preprocessing", parity=Parity.CLOSE, changes=("types", "dims"))
def embed_preprocessing(
    graph: Graph,
    *,
    input: str | None = None,  # noqa: A002 - the field's word
    dtype: str | None = None,
    layout: Literal["NCHW", "NHWC"] | None = None,
    model_layout: Literal["NCHW", "NHWC"] = "NCHW",
    resize: Literal["nearest", "linear", "cubic"] | None = None,
    coordinates: Literal["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"] = "half_pixel",
    antialias: bool = False,
    swap_channels: bool = False,
    scale: list[float] | float = 1.0,
    mean: list[float] | float = 0.0,
    std: list[float] | float = 1.0,
) -> None:
    """Add preprocessing to an image input: uint8, NHWC, BGR, any size.

    The image is processed in this order: cast, conversion to the layout of the model, resize to its height and width,
    reversal of the channels, and `(image * scale - mean) / std`, which is one Mul and one Add with constants computed
    in double precision.

    Right by the definition of these steps. Resize follows the ONNX operator in the chosen mode, which may differ from
    image libraries. For a float16 input, all steps are computed in float32.

    Options:
        input: the input of the model; optional if there is only one.
        dtype: the type of the image, such as uint8; by default that of the input.
        layout: the layout of the image; by default that of the model.
        model_layout: the layout of the input in the model.
        resize: the interpolation mode; the image may then have any height and width.
        coordinates: the coordinate transformation mode of Resize.
        antialias: whether to filter when downsampling; since opset 18.
        swap_channels: whether to reverse the channels, from BGR to RGB or back.
        scale: a factor, one number or one per channel of the model; 1/255 is 0.00392156862745098.
        mean: the mean, which is subtracted afterwards.
        std: the divisor, which is applied last.

    Example:
        # options: {dtype: uint8, layout: NHWC, scale: 0.00392156862745098, mean: [0.5, 0.4, 0.3], std: 0.25}
        g (float[N,3,8,8] x) => (float[N,3,8,8] y)
        {
            y = Relu(x)
        }
    """
    port = only(graph, input, graph.inputs(), "input")
    _require_plain(port)
    image = Image(port, model_layout, layout or model_layout)
    taken = port.dtype if dtype is None else data_type(dtype)
    if taken is None or not (taken.is_floating_point() or taken.is_integer()):
        raise UsageError(f"an image cannot be {dtype}", todo="use a numeric type such as uint8")
    steps = Steps(
        image, taken, resize, coordinates, antialias, swap_channels, *(_numbers(each) for each in (scale, mean, std))
    )
    steps.check(graph.opset)
    if steps.change_nothing:
        return
    with asked(graph, next(iter(graph.below([port])), None)) as new:
        new.replace(port, steps.build(new))
        new.set_port(port, taken, image.dims(graph.dim_names() if resize else None))
        text, constants = steps.told(graph.opset)
        names: dict[str, Value | str | np.ndarray[Any, Any]] = {"image": port, **constants}
        new.relate_input(port, text, inverse="", **names)


def _require_plain(port: Value) -> None:
    if port.dtype is None or not port.dtype.is_floating_point():
        raise UsageError(
            f"the input '{port.name}' is not a tensor of real numbers", todo="an image is converted to this type"
        )
    if port.rank != 4:
        known = "is not known" if port.rank is None else f"is {port.rank}"
        raise UsageError(f"the rank of '{port.name}' {known}, and images have 4 dims")
    if port.is_output:
        raise UsageError(f"'{port.name}' is an input and an output", todo="insert an Identity between them")
    if port.is_overridable:
        raise UsageError(f"the input '{port.name}' has a default", todo="make it a constant or a plain input before")


def _numbers(given: list[float] | float) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    return np.array(given, np.float64).reshape(-1)
