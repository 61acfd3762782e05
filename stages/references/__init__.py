"""What a user would choose instead: stages without a recipe, with the same work and the same checks."""
