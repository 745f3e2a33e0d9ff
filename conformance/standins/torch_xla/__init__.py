"""Stands in for torch_xla where a public script only asks it for a device to put tensors on."""
