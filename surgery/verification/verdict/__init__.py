"""Whether two models compute the same: the checker, the signature, the regions of a change, the whole."""
