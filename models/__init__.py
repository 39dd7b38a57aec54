"""Example models: the scripts that build or fetch them. Not installed with deploykit."""
