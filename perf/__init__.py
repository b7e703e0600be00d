"""Measurements of speed, as ratios to a peer in the same run: machines differ, and so do their moods."""
