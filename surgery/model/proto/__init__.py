"""Tools for ModelProto without an IR: data flow, extraction, composition, fingerprints, signatures, lineage."""
