"""What a student hands in: packed, checked as the grader will, with a writeup that fits it."""
