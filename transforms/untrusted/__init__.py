"""Checks of files and graphs from unknown sources, before anything decodes or runs them."""
