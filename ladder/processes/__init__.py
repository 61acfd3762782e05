"""Fresh processes for stages, started or forked."""
