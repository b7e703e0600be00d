"""The command line: flags in, exit codes out. The only place that reads the environment."""
