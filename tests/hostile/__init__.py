"""Files made to do harm or to fail: what each command does with them, and what it must do."""
