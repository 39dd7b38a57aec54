"""What people look at: plots of results."""
