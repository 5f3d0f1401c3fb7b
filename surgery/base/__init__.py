"""What everything stands on, for which no model is needed: errors, promises, facts about operators, workers.

Nothing here knows a model or a recipe, and nothing here imports from another wing.
"""
