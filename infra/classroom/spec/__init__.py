"""What a class is: class.yml and the roster, checked, and one run of a command on it."""
