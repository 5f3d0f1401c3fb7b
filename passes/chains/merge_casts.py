"""Chains of Cast."""

from surgery import Builder, Match, Parity, Value, pattern_pass

_FLOATS = {"FLOAT16", "BFLOAT16", "FLOAT", "DOUBLE"}
_WIDE = {"INT32", "INT64", "FLOAT", "DOUBLE"}
_ROOMS = {
    "BOOL": {"UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", *_WIDE, *_FLOATS},
    "UINT8": {"UINT16", "UINT32", "UINT64", "INT16", *_WIDE, *_FLOATS},
    "INT8": {"INT16", *_WIDE, *_FLOATS},
    "UINT16": {"UINT32", "UINT64", *_WIDE},
    "INT16": _WIDE,
    "UINT32": {"UINT64", "INT64", "DOUBLE"},
    "INT32": {"INT64", "DOUBLE"},
    "FLOAT16": {"FLOAT", "DOUBLE"},
    "BFLOAT16": {"FLOAT", "DOUBLE"},
    "FLOAT": {"DOUBLE"},
}
"""The types that hold all values of each type."""


@pattern_pass(
    "merge-casts",
    match="""
        a = Cast(x)
        y = Cast(a)
    """,
    parity=Parity.EXACT,
)
def merge_casts(m: Match, new: Builder) -> Value:
    """Merge a Cast to a wider type into the following Cast; remove both if the second restores the type.

    Right because a type that holds all values of the first one changes none of them, so the second Cast reads the
    original values. Not merged are casts from floats to integers, where the result of an overflow depends on the
    intermediate type, and casts through floats from an integer type to one that does not hold all its values.

    Example:
        g (float16[N] x) => (bfloat16[N] y) {
            a = Cast<to = 1>(x)
            y = Cast<to = 16>(a)
        }
    """
    first, middle, last = ("" if value.dtype is None else value.dtype.name for value in (m.x, m.a, m.y))
    m.require(middle in _ROOMS.get(first, ()), "the intermediate type may lose information")
    if first == last:
        same: Value = m.x
        return same
    fits = last == "BOOL" or last in _FLOATS or last in _ROOMS[first]
    by_integers = first not in _FLOATS and middle not in _FLOATS and last not in _FLOATS
    m.require(fits or (by_integers and last != "STRING"), "numbers out of range may change")
    return new.node("Cast", m.x, to=m.node("y").attr("to"))
