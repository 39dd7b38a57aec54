"""Output of each command, and options that only affect the output.

A presenter has the name of the public function. It gets an `Invocation`, calls the function once,
and prints the result. Its keyword arguments are options of the command.
"""
