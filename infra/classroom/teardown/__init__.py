"""Find everything of a class, remove it, and prove that it is gone."""
