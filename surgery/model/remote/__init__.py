"""Files at URLs: listing, fetching and replacing objects."""
