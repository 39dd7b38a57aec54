"""Graph transforms, one per module; packages of this folder contain the code that they share."""
