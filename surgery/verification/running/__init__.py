"""How models are run to be compared: in pieces, with declared types, at given sizes."""
