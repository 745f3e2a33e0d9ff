"""Check the kernels: small cases (the default), or with --speed those that ask for a time."""
import sys

try:
    from labkit.cli import guarded, kernel_tester
except ModuleNotFoundError as error:
    print(f"could not run: {error.name} is not installed; README.md at the top of the repository "
          "has the command that installs what the labs need", file=sys.stderr)
    sys.exit(2)
from spec import KERNELS, LAB

if __name__ == "__main__":
    sys.exit(guarded(kernel_tester(LAB, KERNELS)))
