"""Machine-learning pipelines: their wire shapes, services and results."""
