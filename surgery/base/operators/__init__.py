"""All facts about operators, one file per question."""
