"""How fast models run against each other: paired times, intervals, memory, and a profile by operator."""
