"""An emulator that others wrote (ministack), behind a proxy that answers what it lacks."""
