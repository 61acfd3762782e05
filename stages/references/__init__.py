"""What a user would pick instead: stages without a recipe, held to the same work and the same gates."""
