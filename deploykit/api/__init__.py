"""What a notebook calls and each command is: one function a file, of the command's name."""
