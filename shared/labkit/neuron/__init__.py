"""What runs on a machine with Neuron devices: is it all right, profiles, the measured NEFF.

The programs are AWS's: neuron-ls, neuron-profile (SDKs before 2.29, with InfluxDB), neuron-explorer
(later ones). Their options and formats are those of AWS's documents; nothing here has been run with
the real programs yet, and the tests use small programs that are named as fakes.
"""
