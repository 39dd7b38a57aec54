"""What computes the signatures of a version, behind one small interface."""
