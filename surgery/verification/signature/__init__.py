"""How the signature of a changed model follows from that of the original."""
