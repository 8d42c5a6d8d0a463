"""The main job from beginning to end: collective recognition of handwritten digits."""
