"""What knows nothing of reinforcement learning specs: errors, random streams, files, logs, distributions."""
