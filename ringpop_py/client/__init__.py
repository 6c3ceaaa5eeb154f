"""The cluster as seen by a program that is no member of it; without trio."""
