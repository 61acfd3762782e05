"""Programs that set up, check and record the project; no other room imports them."""
