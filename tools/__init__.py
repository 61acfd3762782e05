"""Programs that set up, check and record the project; nothing of it imports them."""
