"""A run and a rung as every renderer lays them out: computed once from facts, in numbers and plain text."""
