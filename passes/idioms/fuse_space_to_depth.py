"""SpaceToDepth."""

from surgery import Builder, Match, Parity, Value, pattern_pass

from ._shared import block_of, require_before_28, times


@pattern_pass(
    "fuse-space-to-depth",
    match="""
        r = Reshape(x, blocks)
        t = Transpose<perm = [0, 3, 5, 1, 2, 4]>(r)
        y = Reshape(t, joined)
    """,
    parity=Parity.EXACT,
)
def fuse_space_to_depth(m: Match, new: Builder) -> Value:
    """Turn a Reshape, a Transpose and a Reshape into SpaceToDepth.

    Right because these steps invert DepthToSpace in depth-column-row order, which is the definition of the operator.
    The intermediate dims must be known to be those of blocks: n, c, h/b, b, w/b, b.

    Example:
        g (float[1,2,4,6] x) => (float[1,8,2,3] y)
        <int64[6] blocks = {1, 2, 2, 2, 3, 2}, int64[4] joined = {1, 8, 2, 3}> {
            r = Reshape(x, blocks)
            t = Transpose<perm = [0, 3, 5, 1, 2, 4]>(r)
            y = Reshape(t, joined)
        }
    """
    require_before_28(m, "SpaceToDepth")
    block = block_of(m.r, m.y, 3)
    n, depth, height, width = m.y.shape
    inner = (n, depth // block**2, height, block, width, block)
    whole = (n, depth // block**2, times(height, block), times(width, block))
    fits = m.r.shape == inner and m.x.shape == whole
    m.require(fits and None not in whole, "the dims are not known to be those of blocks")
    return new.node("SpaceToDepth", m.x, blocksize=block)
