"""How the shapes model was made, and how its images are judged."""
