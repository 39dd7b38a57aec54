"""What a server tells of its work."""
