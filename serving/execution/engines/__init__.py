"""The engines that run the signatures of a version, behind one small interface."""
