"""DepthToSpace."""

from surgery import Builder, Match, Parity, Value, pattern_pass

from ._shared import block_of, require_before_28, require_operator, times

ORDERS = {(0, 3, 4, 1, 5, 2): ("DCR", 1), (0, 1, 4, 2, 5, 3): ("CRD", 2)}
"""The mode for each permutation, with the position of the two block dims before the Transpose."""


@pattern_pass(
    "fuse-depth-to-space",
    match="""
        r = Reshape(x, blocks)
        t = Transpose<perm = perm>(r)
        y = Reshape(t, joined)
    """,
    parity=Parity.EXACT,
)
def fuse_depth_to_space(m: Match, new: Builder) -> Value:
    """Turn a Reshape, a Transpose and a Reshape into DepthToSpace.

    Right because the specification defines the operator by these steps, for depth-column-row and column-row-depth order
    (the mode CRD exists since opset 11). The intermediate dims must be known to match: the block twice, the height and
    the width of x, and finally height and width times the block.

    Example:
        g (float[1,8,2,3] x) => (float[1,2,4,6] y)
        <int64[6] blocks = {1, 2, 2, 2, 2, 3}, int64[4] joined = {1, 2, 4, 6}> {
            r = Reshape(x, blocks)
            t = Transpose<perm = [0, 3, 4, 1, 5, 2]>(r)
            y = Reshape(t, joined)
        }
    """
    require_operator(m, "DepthToSpace", 11)
    require_before_28(m, "DepthToSpace")
    mode, at = ORDERS.get(tuple(m.perm or ()), ("", 0))
    m.require(mode, "the permutation is different")
    block = block_of(m.r, m.x, at)
    n, depth, height, width = m.x.shape
    inner = [n, height, width]
    inner[1:1] = [block, block, depth // block**2] if mode == "DCR" else [depth // block**2, block, block]
    joined = (n, depth // block**2, times(height, block), times(width, block))
    fits = m.r.shape == tuple(inner) and m.y.shape == joined
    m.require(fits and None not in joined, "the dims are not known to be those of blocks")
    return new.node("DepthToSpace", m.x, blocksize=block, mode=mode)
