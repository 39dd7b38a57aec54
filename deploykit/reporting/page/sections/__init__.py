"""The sections of a page: a module each, which reads one kind of document."""
