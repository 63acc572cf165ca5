"""The transactional outbox: events, their table, the relay and the places it delivers to."""
