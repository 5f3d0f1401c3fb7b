"""The bytes of a model: the protobuf wire format, tensors and long lists as ranges of mapped files."""
