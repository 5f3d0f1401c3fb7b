"""Tools on ModelProto without an IR: data flow, extraction, composition, fingerprints, summaries."""
