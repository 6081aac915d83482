"""The shapes model: a small text-to-image diffusion model that was trained for this project."""
