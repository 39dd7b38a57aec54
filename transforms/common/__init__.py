"""Errors and their messages, values as JSON documents, and metadata of parameters: what every
other module may use.
"""
