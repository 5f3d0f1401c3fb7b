"""Wrong and right rewrites of many models, and how the whole verification judges them."""
