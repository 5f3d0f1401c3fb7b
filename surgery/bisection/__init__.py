"""From a failing step to the sites that make it fail, and to a small model that shows it."""
