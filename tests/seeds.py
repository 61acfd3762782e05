"""The seed of numbers that tests draw: the same in every run, unless `LADDER_TEST_SEED` names another."""

import os

SEED = int(os.environ.get("LADDER_TEST_SEED", "0"))
