"""What runs in AWS Lambda for a class, and the program `my.py` that students use with it."""
