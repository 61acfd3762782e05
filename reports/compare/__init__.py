"""Two runs compared, or several side by side."""
