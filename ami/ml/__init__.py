"""Machine-learning pipelines: wire models, processing services and results."""
