"""What people read: tables, sizes, progress."""
