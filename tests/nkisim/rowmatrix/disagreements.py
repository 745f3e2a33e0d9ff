MATRIX = {}
def marks_of(name): return []
