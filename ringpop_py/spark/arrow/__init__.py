"""Rows of Arrow as keys with packed values, and back."""
