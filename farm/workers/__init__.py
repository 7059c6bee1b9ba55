"""What runs jobs: the measurement and verification work itself, in process or behind Ray actors."""
