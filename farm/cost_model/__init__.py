"""What one decode step must read, how long it takes, and where most can be gained."""
