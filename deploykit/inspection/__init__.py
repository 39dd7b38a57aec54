"""Model contents, differences between two models, and the placement of nodes on devices."""
