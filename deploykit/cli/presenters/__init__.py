"""What each command prints of its result, and the options that only matter there.

A presenter bears the name of the public function. It is called with an `Invocation`, makes one call
of the function, and shows the result. Its keyword arguments are options of the command.
"""
