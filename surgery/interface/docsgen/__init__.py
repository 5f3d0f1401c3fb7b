"""The generated part of the documentation: the reference of passes and of recipe keys."""
