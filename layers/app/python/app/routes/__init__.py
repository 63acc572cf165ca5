"""The HTTP routes of the domain, a module for each of its things, and what they show of it."""
