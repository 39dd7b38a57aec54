"""The stages of shipping: functions that call other commands."""
