"""The gateway: HTTP in OpenAI's shapes on one side, links to orchestrators on the other."""
