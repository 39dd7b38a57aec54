"""Accuracy of models on labelled samples, and samples on which models disagree."""
