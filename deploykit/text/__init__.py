"""What people read: tables, sizes, the machine in lines."""
