"""The students' work: fetched, checked, copied."""
