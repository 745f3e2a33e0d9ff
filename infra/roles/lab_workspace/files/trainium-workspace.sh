# The environment of the labs of whoever logs in; read after trainium-venv.sh, whose tools stay on the PATH. Written by trainium-labs.
if [ -x "$HOME/labs/.venv/bin/python" ]; then
    VIRTUAL_ENV="$HOME/labs/.venv"
    PATH="$VIRTUAL_ENV/bin:$PATH"
    export VIRTUAL_ENV PATH
fi
