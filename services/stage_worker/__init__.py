"""A stage worker: one engine behind a link."""
