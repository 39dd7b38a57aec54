"""Batch inference over a dataset, part by part, in processes of one machine or on a cluster."""
