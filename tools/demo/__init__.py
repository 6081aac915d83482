"""`make demo`: the mesh's main job on real models, with every result checked."""
