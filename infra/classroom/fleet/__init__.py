"""Which machines there should be, which there are, and how they are reached."""
