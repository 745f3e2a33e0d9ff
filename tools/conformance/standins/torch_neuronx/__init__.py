"""Stands in for torch_neuronx where a public script only imports it, to register the device."""
