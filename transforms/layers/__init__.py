"""Layers of a network, recognized by the ops that compute them."""
