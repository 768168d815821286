"""Mathematics only: tensors in, tensors out; no modules, files, settings or environments."""
