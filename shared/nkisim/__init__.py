"""nkisim: a portable simulator of the Neuron Kernel Interface (NKI)."""
__version__ = "0.1.0"
