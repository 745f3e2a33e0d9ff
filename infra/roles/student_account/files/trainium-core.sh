# The NeuronCore of whoever logs in; processes see only this one. Written by trainium-labs.
if [ -r /etc/trainium-labs/cores ]; then
    _core=$(awk -v user="$(id -un)" '$1 == user { print $2 }' /etc/trainium-labs/cores)
    if [ -n "$_core" ]; then NEURON_RT_VISIBLE_CORES=$_core; export NEURON_RT_VISIBLE_CORES; fi
    unset _core
fi
