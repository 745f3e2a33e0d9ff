"""The students' repository, made from the staff's: export, leak check, updates."""
