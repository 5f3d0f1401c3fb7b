"""The editing surface that passes see: values, nodes, the builder of a site, and its commit."""
